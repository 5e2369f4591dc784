"""The results folder: built under a hidden name and renamed when it is complete, so none is ever seen half-written.

An unfinished one (killed, interrupted, disk full) keeps its hidden name and its journal, and can be taken up again.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Self

from sim.errors import ResultsError
from sim.experiment.files import StorageError, write_bytes
from sim.experiment.journal import NAME as JOURNAL
from sim.experiment.journal import read_journal

try:
    import fcntl
except ImportError:  # not on Windows: nothing is locked there
    fcntl = None  # type: ignore[assignment]

SLUG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")
_HIDDEN = re.compile(r"\.(?P<stem>.+)\.partial")
_LOCK = ".lock"


class RunFolder:
    """A results folder in the making, held by this process alone.

    Args:
        out_dir: where results go; `<out_dir>/<name>/<time>-<hash>` is made below it.
        name: the experiment's name, a slug.
        digest: hash of the scenario; its first 8 digits end the folder's name.

    Attributes:
        path: where it is now.

    Raises:
        ResultsError: the folder cannot be made there, or the name is not a slug.
    """

    def __init__(self, out_dir: Path, name: str, digest: str) -> None:
        check_slug(name)
        parent = out_dir / name
        try:
            self._made = [folder for folder in (parent, out_dir) if not folder.exists()]
            parent.mkdir(parents=True, exist_ok=True)
            clear_litter(parent)
            self._stem, self._found = _fresh(parent, f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{digest[:8]}")
            self.path = self._found
            self._lock = _locked(self.path)
        except OSError as error:
            raise ResultsError(
                f"{parent}: results cannot be written there ({error.strerror}); choose another folder with -o"
            ) from error

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Take up an unfinished folder again, hidden or published as interrupted.

        Raises:
            ResultsError: it is not one, or another process works on it.
        """
        hidden = _HIDDEN.fullmatch(path.name)
        folder = cls.__new__(cls)
        folder._made, folder._stem, folder._found = [], hidden["stem"] if hidden else path.name, path
        try:
            folder.path = path if hidden else path.rename(while_unfinished(path))
            folder._lock = _locked(folder.path)
        except OSError as error:
            raise ResultsError(f"{path}: cannot be taken up again ({error.strerror})") from error
        return folder

    def write(self, relative: str, data: bytes, *, durable: bool = True) -> None:
        """Write one file, whole or not at all.

        Args:
            relative: its name in this folder.
            data: its content.
            durable: wait until the disk has it; not needed where the journal holds a digest of it.

        Raises:
            StorageError: it cannot be written, or its name leads out of the folder.
        """
        path = self.inside(relative)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{relative}: cannot be written ({error.strerror})") from error
        write_bytes(path, data, durable=durable)

    def inside(self, relative: str) -> Path:
        """The path of a file in this folder.

        Raises:
            StorageError: the name leads out of the folder, or through a link.
        """
        root = self.path.resolve()
        path = (self.path / relative).resolve()
        if not path.is_relative_to(root):
            raise StorageError(f"{relative}: leads out of the results folder")
        return path

    def publish(self) -> Path:
        """Give the folder its final name and return it. The last step: before it, nothing is visible.

        Raises:
            StorageError: it cannot be renamed.
        """
        parent = self.path.parent
        self._release()
        for number in range(1, 1000):
            final = parent / (self._stem if number == 1 else f"{self._stem}-{number}")
            try:
                self.path.rename(final)
            except OSError as error:
                if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    continue
                raise StorageError(f"{final.name}: cannot be renamed ({error.strerror})") from error
            _sync_folder(parent)
            return final
        raise StorageError(f"{self._stem}: too many runs of the same second")

    def put_back(self) -> None:
        """Give a reopened folder that cannot be gone on with the name back under which it was found."""
        self._release()
        self.path = self.path.rename(self._found)

    def leave(self) -> None:
        """Stop working on it: kept for a later `reopen` when its journal holds a finished run, else removed."""
        if holds_runs(self.path):
            self._release()
        else:
            self.discard()

    def discard(self) -> None:
        """Remove everything written so far, and the folders above that were made for it and hold nothing else."""
        self._release()
        shutil.rmtree(self.path, ignore_errors=True)
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()

    def _release(self) -> None:
        (self.path / _LOCK).unlink(missing_ok=True)
        self._lock.close()


def holds_runs(folder: Path) -> bool:
    """Whether a folder's journal has a finished run (its first record is the header)."""
    records = read_journal(folder / JOURNAL)
    return next(records, None) is not None and next(records, None) is not None


def unfinished(parent: Path) -> Iterator[Path]:
    """Hidden folders below `parent` that hold finished runs and that nobody works on, the latest first."""
    for folder in sorted(parent.glob(".*.partial"), reverse=True):
        if not is_locked(folder) and holds_runs(folder):
            yield folder


def resumable(parent: Path, stem: str) -> Iterator[Path]:
    """Folders below `parent` with `-<stem>` in their name that can be or are being gone on with, the latest first.

    Those are the unfinished ones, those that a process works on now, and those published as interrupted.
    """
    found = [*parent.glob(f".*-{stem}*.partial"), *parent.glob(f"[!.]*-{stem}*")]
    for folder in sorted(found, key=lambda path: path.name.lstrip("."), reverse=True):
        hidden = _HIDDEN.fullmatch(folder.name)
        if (is_locked(folder) or holds_runs(folder)) if hidden else _is_interrupted(folder):
            yield folder


def _is_interrupted(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("status") == "interrupted" and holds_runs(folder)


def clear_litter(parent: Path, *, everything: bool = False) -> list[Path]:
    """Remove hidden folders that nobody works on and that hold no finished run, or all that nobody works on.

    Returns:
        What was removed.
    """
    litter = [f for f in sorted(parent.glob(".*.partial")) if not is_locked(f) and (everything or not holds_runs(f))]
    for folder in litter:
        shutil.rmtree(folder, ignore_errors=True)
    return litter


def while_unfinished(path: Path) -> Path:
    """The hidden name that a results folder has while it is worked on, and keeps when its process is killed."""
    return path.with_name(f".{path.name}.partial")


def is_locked(folder: Path) -> bool:
    """Whether a process works on the folder now; a lock left behind by a killed one does not count."""
    try:
        lock = (folder / _LOCK).open("r+")
    except OSError:
        return False
    with lock:
        return not _try_lock(lock)


def check_slug(name: str) -> str:
    """The name itself when it is safe as a folder's name.

    Raises:
        ResultsError: it is not.
    """
    if not SLUG.fullmatch(name):
        raise ResultsError(f"{name!r} cannot name a folder: letters, digits, '.', '_' and '-', not starting with a dot")
    return name


def _fresh(parent: Path, stem: str) -> tuple[str, Path]:
    """Make a new hidden folder; a number is added when another process of this second has the name."""
    for number in range(1, 1000):
        name = stem if number == 1 else f"{stem}-{number}"
        try:
            (parent / f".{name}.partial").mkdir()
        except FileExistsError:
            continue
        return name, parent / f".{name}.partial"
    raise FileExistsError(errno.EEXIST, "too many runs of the same second")


def _locked(folder: Path) -> IO[str]:
    """Hold the folder's lock until the file is closed, which the end of the process does in any case."""
    lock = (folder / _LOCK).open("a+")
    if not _try_lock(lock):
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise ResultsError(f"{folder}: another process works on it ({holder})")
    lock.truncate(0)
    lock.write(f"pid {os.getpid()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n")
    lock.flush()
    return lock


def _try_lock(lock: IO[str]) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: nothing can be said
        return True
    return True


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
