"""What lies in no table of a data folder: time shares, errors of peers, and notes on the suites."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from sim.calibration.tables import read_table

_DATA = Path(__file__).parent / "data"


class PeerError(NamedTuple):
    """Mean error of another simulator, per cent, and where it is from."""

    percent: float
    peer: str
    source: str


@lru_cache(maxsize=1)
def _peers() -> dict[str, PeerError]:
    table = read_table(_DATA / "peers.csv", ("what", "error_percent", "peer", "source"))
    errors = table.numbers("error_percent").tolist()
    rows = zip(table.keys(("what", "peer", "source")), errors, strict=True)
    return {what: PeerError(percent, peer, source) for (what, peer, source), percent in rows}


def peer_error(what: str) -> PeerError | None:
    """What another simulator states for this, if it is known."""
    return _peers().get(what)


class ShareRow(NamedTuple):
    """Shares of a decode step in per cent, as published; `method` may be `plain`.

    The data set is that of the source's `*-perf-breakdown.sh` scripts, whose batches and K these are; its articles have
    781 words on average.
    """

    source: str
    target_model: str
    gpu: str
    n_gpus: int
    engine: str
    method: str
    k_or_tree: str
    dataset: str
    input_len: str
    batch: int
    draft: float
    verify: float
    overhead: float
    trust: int


def share_rows() -> list[ShareRow]:
    """All of them."""
    text = ("source", "target_model", "gpu", "engine", "method", "k_or_tree", "dataset", "input_len")
    numbers = ("n_gpus", "batch", "draft", "verify", "overhead", "trust")
    table = read_table(_DATA / "time_shares.csv", (*text, *numbers))
    columns = {name: table.text(name).tolist() for name in text} | {
        name: table.numbers(name).tolist() for name in numbers
    }
    for name in ("n_gpus", "batch", "trust"):
        columns[name] = [round(value) for value in columns[name]]
    return [ShareRow(*cells) for cells in zip(*(columns[name] for name in ShareRow._fields), strict=True)]


def notes() -> str:
    """What was fitted, likely causes of known gaps, and what public data cannot check, as Markdown."""
    return (_DATA / "notes.md").read_text(encoding="utf-8")
