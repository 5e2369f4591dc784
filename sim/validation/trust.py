"""Can I trust it for my case? What was checked, by method, engine, GPU generation and batch, and what was not."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.calibration.tables import read_table
from sim.hardware.catalogue import find_gpu, gpu_ids
from sim.speculation.base import SPECULATION
from sim.validation import as_published
from sim.validation.markdown import table
from sim.validation.server_suite import ServerSuite
from sim.validation.servers import ENGINES
from sim.validation.speedup import Found, Speedups

#: Errors up to this can be planned with; above that one, not.
TRUSTED, DOUBTFUL = 8.0, 15.0
#: Batches that share a column: the largest of each. The last column is that of request rates.
_BATCHES = (1, 16, 64, None)
_COLUMNS = ("batch 1", "batch 2 to 16", "batch 17 to 64", "batch above 64", "request rates")
_RATES = len(_BATCHES)
_PLAIN = "plain decoding"
_FITTED = ("what", "method", "engine", "cases", "costs")
_DATA = Path(__file__).parent / "data"
#: So few figures are no reason to trust or distrust.
_FEW = 3


class Check(NamedTuple):
    """One measured figure that was predicted.

    Attributes:
        what: speed-up, TPOT or TTFT.
        method: `eagle3 chain`, `plain decoding`, ...
        engine: id of its profile.
        generation: of the GPU.
        batch: or concurrency; of recorded runs the mean number of running requests; None where a rate is stated.
        error: per cent, signed.
        case: id of the row, group of a whole server, name of a recorded run.
    """

    what: str
    method: str
    engine: str
    generation: str
    batch: float | None
    error: float
    case: str

    @property
    def fitted(self) -> str:
        """The costs of its engine that were fitted to it and others; empty: none."""
        costs = _fitted().get((self.what, self.method, self.engine), ())
        return next((what for cases, what in costs if self.case.startswith(cases)), "")


class Line(NamedTuple):
    """All checks of one kind: `errors` are those of the columns, batches in ascending order and rates last.

    `fitted` are costs of the engine that were fitted to some of them.
    """

    what: str
    method: str
    engine: str
    generation: str
    errors: tuple[tuple[float, ...], ...]
    fitted: str

    @property
    def everything(self) -> tuple[float, ...]:
        """Errors of all batches."""
        return tuple(error for column in self.errors for error in column)

    @property
    def mape(self) -> float:
        """Mean absolute error over all batches."""
        return float(np.mean(np.abs(self.everything)))


def speedup_checks(suite: Speedups) -> Iterator[Check]:
    """Of every scored speed-up."""
    for one in suite.found:
        if one.speedup is not None:
            generation = find_gpu(as_published.gpu(one.case.row.gpu)).arch
            batch = None if one.case.drive == "open" else one.case.load
            error, case = one.speedup.error, one.case.row.case_id
            yield Check("speed-up", _method(one), _engine(one), generation, batch, error, case)


def _method(one: Found) -> str:
    if one.case.drive == "steps":
        return "verify steps, drafting as published"
    method = str(one.case.config["method"])
    return f"{method} {'tree' if one.case.tree else 'block' if method == 'dflash' else 'chain'}"


def _engine(one: Found) -> str:
    """The profile; marked where what was measured is a much older version."""
    old = as_published.engine_is_stretched(one.case.row.engine)
    return f"{one.case.engine}, for an older version" if old else one.case.engine


def server_checks(suite: ServerSuite) -> Iterator[Check]:
    """Of whole servers, and of recorded runs at the mean number of running requests."""
    for score in (*suite.points.dense, *suite.points.experts):
        _, gpu, backend, _ = score.group.split(", ")  # as `server_points` names its groups
        generation, load = find_gpu(gpu).arch, float(score.load)
        yield Check(score.quantity, _PLAIN, ENGINES[backend], generation, load, score.error, score.group)
    for run in suite.runs:
        running = next((float(one.measured.mean()) for one in run.series if one.what == "running"), None)
        for score in run.scores:
            if running is not None and score.quantity in ("mean TPOT", "mean TTFT"):
                what = score.quantity.removeprefix("mean ")
                yield Check(what, _PLAIN, "vllm", find_gpu(run.gpu).arch, running, score.error, run.name)


def lines(checks: Iterable[Check]) -> list[Line]:
    """Checks gathered, speed-ups first, then by method, engine and generation."""
    groups: dict[tuple[str, str, str, str], list[list[float]]] = defaultdict(lambda: [[] for _ in _COLUMNS])
    fitted: dict[tuple[str, str, str, str], str] = {}
    for one in checks:
        key = (one.what, one.method, one.engine, one.generation)
        groups[key][_column(one.batch)].append(one.error)
        fitted[key] = fitted.get(key) or one.fitted
    order = ("speed-up", "TPOT", "TTFT")
    known = sorted(groups.items(), key=lambda item: (order.index(item[0][0]), *item[0][1:]))
    return [Line(*key, tuple(map(tuple, columns)), fitted[key]) for key, columns in known]


def _column(batch: float | None) -> int:
    if batch is None:
        return _RATES
    return next(at for at, most in enumerate(_BATCHES) if most is None or batch <= most)


def trust_table(found: Sequence[Line]) -> str:
    """A row per line; mean and worst error per batch range, a dash where nobody measured."""
    rows = [
        [one.what, one.method, one.engine, one.generation, *map(_cell, one.errors), str(len(one.everything)),
         one.fitted]
        for one in found
    ]  # fmt: skip
    return table(
        [
            "what",
            "method",
            "engine costs",
            "GPU generation",
            *_COLUMNS,
            "figures",
            "fitted to some of them",
        ],
        rows,
    )


def _cell(errors: Sequence[float]) -> str:
    if not errors:
        return "-"
    mean, worst = float(np.mean(np.abs(errors))), float(np.max(np.abs(errors)))
    text = f"{mean:.0f} %" if len(errors) == 1 else f"{mean:.0f} %, worst {worst:.0f}"
    return f"**{text}**" if mean > DOUBTFUL else text


@lru_cache(maxsize=1)
def _fitted() -> dict[tuple[str, str, str], list[tuple[str, str]]]:
    """By kind of check: how the cases that were fitted to begin, and what was."""
    found: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for what, method, engine, cases, costs in read_table(_DATA / "fitted.csv", _FITTED).keys(_FITTED):
        found[what, method, engine].append((cases, costs))
    return dict(found)


def verdict(found: Sequence[Line]) -> str:
    """Three sentences: what to trust, what not, what nobody has checked."""
    return "\n".join(
        f"- **{word}**: {text}."
        for word, text in (
            (
                f"Trust (mean error up to {TRUSTED:g} %; *: costs of the engine were fitted to some of these figures)",
                _within(found, 0.0, TRUSTED) or "nothing",
            ),
            (f"Do not trust (above {DOUBTFUL:g} %)", _within(found, DOUBTFUL, np.inf) or "nothing that was checked"),
            ("Nobody could check", _unchecked(found)),
        )
    )


def _within(found: Sequence[Line], above: float, up_to: float) -> str:
    """What has a mean error in this range, by engine and generation, with the batches where those are not all."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for one in found:
        means = [float(np.mean(np.abs(column))) if column else None for column in one.errors]
        chosen = [at for at, mean in enumerate(means) if mean is not None and above < mean <= up_to]
        if sum(len(one.errors[at]) for at in chosen) >= _FEW:
            all_of_them = len(chosen) == sum(mean is not None for mean in means)
            name = one.method + ("*" if one.fitted else "")
            groups[one.what, one.engine, one.generation].append(name + ("" if all_of_them else _batches(chosen)))
    return "; ".join(
        f"{what} with {engine} on {generation}" + _in_brackets(names)
        for (what, engine, generation), names in groups.items()
    ).replace(" with none on", " of steps on")


def _in_brackets(names: Sequence[str]) -> str:
    """Methods with their batches; plain decoding at all batches goes without saying."""
    known = {_PLAIN: "", f"{_PLAIN}*": "*"}
    return known[names[0]] if len(names) == 1 and names[0] in known else f" ({', '.join(names)})"


def _batches(chosen: Sequence[int]) -> str:
    """` at batch 2 to 64`: columns that are next to each other become one range."""
    runs: list[list[int]] = []
    for at in (at for at in chosen if at != _RATES):
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    batches = [f"batch {' and '.join(_range(run[0], run[-1]) for run in runs)}"] if runs else []
    return f" at {' and '.join([*batches, *(['request rates'] if _RATES in chosen else [])])}"


def _range(first: int, last: int) -> str:
    low = 1 if first == 0 else (_BATCHES[first - 1] or 0) + 1
    high = _BATCHES[last]
    return f"{low} and more" if high is None else str(low) if high == low else f"{low} to {high}"


def _unchecked(found: Sequence[Line]) -> str:
    methods = [name for name in SPECULATION.members() if name != "plain" and not any(_is(one, name) for one in found)]
    checked = {one.generation for one in found}
    generations = sorted({find_gpu(gpu).arch for gpu in gpu_ids()} - checked)
    return (
        f"speed-ups of {', '.join(methods)}; GPUs of {', '.join(generations)}; preemption and chunked prefill beside "
        "speculative steps; P99 with speculation at equal load"
    )


def _is(one: Line, method: str) -> bool:
    return one.method.split(" ")[0] == method
