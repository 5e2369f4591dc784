"""What of a data folder each suite needs, and what to say where it is not there."""

from pathlib import Path
from typing import NamedTuple

from sim.errors import ResultsError
from sim.validation.physics import OPERATORS
from sim.validation.servers import SERVER_FILE

#: Where the public measurements are listed and every column is explained.
GUIDE = "docs/reference/validate.md"


class NothingToScoreError(ResultsError):
    """A folder holds nothing that a suite could score."""


class Need(NamedTuple):
    """Files of a suite: patterns by the sub-folder they may lie in; one of them is enough."""

    files: tuple[tuple[str, str], ...]
    words: str


_TIMINGS = tuple(("gpu_timings", name) for name in dict.fromkeys((*(one.file for one in OPERATORS), SERVER_FILE)))

NEEDS = {
    "physics": Need(_TIMINGS, "gpu_timings/ with kernel times (gemm.csv, attention_decode.csv, ...) or e2e_tpot.csv"),
    "acceptance": Need(
        (("acceptance", "*_accepted.csv*"), ("acceptance", "*acceptance_length*.csv"), ("published", "*.csv")),
        "acceptance/ with NAME_accepted.csv.gz or NAME_acceptance_length.csv, or published/*.csv with means at several "
        "K",
    ),
    "server": Need(
        (("recorded_vllm", "*_requests.csv"), ("gpu_timings", SERVER_FILE)),
        "recorded_vllm/ with NAME_requests.csv and NAME_engine.json, or gpu_timings/e2e_tpot.csv",
    ),
    "speedup": Need((("published", "*.csv"),), "published/*.csv with rows of published measurements"),
}


def has_data(folder: Path, suite: str) -> bool:
    """Whether a file that the suite could read is there; files may lie in `folder` itself."""
    return any(any((folder / sub).glob(name)) for sub, name in NEEDS[suite].files) or any(
        any(folder.glob(name)) for _, name in NEEDS[suite].files
    )


def nothing_to_score(folder: Path, suite: str) -> NothingToScoreError:
    """What to say where a suite finds nothing."""
    return NothingToScoreError(f"{folder}: nothing for the suite {suite}: it needs {NEEDS[suite].words}; see {GUIDE}")


def what_is_needed() -> str:
    """What a data folder may hold, and how to come by one."""
    needs = "\n".join(f"  {suite}: {need.words}" for suite, need in NEEDS.items())
    return (
        "Measurements are not shipped with specsim (their licences differ). A data folder holds some of\n"
        f"{needs}\n"
        f"{GUIDE} explains every column, and where the public measurements are; what they came to is in "
        "results/validation. Your own load tests need no such folder: specsim validate --measured."
    )
