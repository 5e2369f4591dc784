"""The results folder: built under a hidden name and renamed when it is complete, so none is ever seen half-written."""

import errno
import hashlib
import os
import platform
import re
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from sim.errors import ResultsError
from sim.experiment.files import StorageError, write_bytes

SLUG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")


class RunFolder:
    """A results folder in the making.

    Args:
        out_dir: where results go; `<out_dir>/<name>/<time>-<hash>` is made below it.
        name: the experiment's name, a slug.
        digest: hash of the scenario; its first 8 digits end the folder's name.

    Raises:
        ResultsError: the folder cannot be made there, or the name is not a slug.
    """

    def __init__(self, out_dir: Path, name: str, digest: str) -> None:
        check_slug(name)
        self._parent = out_dir / name
        self._stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{digest[:8]}"
        self.path = self._parent / f".{self._stem}.partial-{_host()}-{os.getpid()}"
        try:
            self._made = [folder for folder in (self._parent, out_dir) if not folder.exists()]
            self._parent.mkdir(parents=True, exist_ok=True)
            self._clear_litter()
            self.path.mkdir(parents=True)
        except OSError as error:
            raise ResultsError(
                f"{self._parent}: results cannot be written there ({error.strerror}); choose another folder with -o"
            ) from error

    def write(self, relative: str, data: bytes) -> None:
        """Write one file, whole or not at all.

        Raises:
            StorageError: it cannot be written, or its name leads out of the folder.
        """
        path = self.inside(relative)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{relative}: cannot be written ({error.strerror})") from error
        write_bytes(path, data)

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
        for number in range(1, 1000):
            final = self._parent / (self._stem if number == 1 else f"{self._stem}-{number}")
            try:
                self.path.rename(final)
            except OSError as error:
                if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    continue
                raise StorageError(f"{final.name}: cannot be renamed ({error.strerror})") from error
            _sync_folder(self._parent)
            return final
        raise StorageError(f"{self._stem}: too many runs of the same second")

    def discard(self) -> None:
        """Remove everything written so far, and the folders above that were made for it and hold nothing else."""
        shutil.rmtree(self.path, ignore_errors=True)
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()

    def _clear_litter(self) -> None:
        """Remove what killed runs of this host left behind."""
        for partial in self._parent.glob(f".*.partial-{_host()}-*"):
            pid = partial.name.rpartition("-")[2]
            if pid.isdecimal() and not _is_alive(int(pid)):
                shutil.rmtree(partial, ignore_errors=True)


def check_slug(name: str) -> str:
    """The name itself when it is safe as a folder's name.

    Raises:
        ResultsError: it is not.
    """
    if not SLUG.fullmatch(name):
        raise ResultsError(f"{name!r} cannot name a folder: letters, digits, '.', '_' and '-', not starting with a dot")
    return name


def _host() -> str:
    """A token for this host: a process of another one that shares the folder may well be alive."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
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
