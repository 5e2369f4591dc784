"""Finished results copied to object storage or another file system (extra `specsim[remote]`)."""

from pathlib import Path

from sim.errors import ResultsError


def copy_to(run_dir: Path, url: str) -> str:
    """Copy a results folder below an fsspec URL, `manifest.json` last: without it the copy is unfinished.

    Args:
        run_dir: the finished folder.
        url: such as `s3://bucket/results` or `file:///mnt/results`.

    Returns:
        URL of the copy.

    Raises:
        ResultsError: fsspec (or what the URL's scheme needs) is not installed, or the copy failed.
    """
    try:
        import fsspec
    except ImportError as error:
        raise ResultsError("--copy-to needs the extra `remote`: pip install 'specsim[remote]'") from error
    try:
        system, root = fsspec.core.url_to_fs(url)
        target = f"{root.rstrip('/')}/{run_dir.parent.name}/{run_dir.name}"
        files = sorted(path for path in run_dir.rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: path.name == "manifest.json"):
            place = f"{target}/{path.relative_to(run_dir).as_posix()}"
            system.makedirs(place.rpartition("/")[0], exist_ok=True)
            system.put_file(str(path), place)
    except (OSError, ValueError, ImportError) as error:
        raise ResultsError(f"{run_dir} is complete, but could not be copied to {url}: {error}") from error
    return str(system.unstrip_protocol(target))
