"""CPU and wall seconds of whole commands, start-up included: median of three runs each."""

import resource
import subprocess
import sys
import tempfile
from statistics import median
from time import perf_counter

COMMANDS = (["--help"], ["check", "quickstart"], ["run", "quickstart", "-q", "-o", tempfile.mkdtemp()])


def measure(arguments: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of one command, workers included."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    subprocess.run([sys.executable, "-m", "sim", *arguments], check=True, capture_output=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter() - start
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> None:
    for arguments in COMMANDS:
        cpu, wall = (median(column) for column in zip(*(measure(arguments) for _ in range(3)), strict=True))
        print(f"specsim {' '.join(arguments[:2]):18s} {cpu:6.2f} CPU-s  {wall:6.2f} s")


if __name__ == "__main__":
    main()
