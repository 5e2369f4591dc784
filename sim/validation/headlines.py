"""What the overview shows of each suite: few figures with target and what others come to, and all pairs as clouds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.validation.acceptance import DataSet
from sim.validation.acceptance import Score as AcceptanceScore
from sim.validation.physics import Report, pooled
from sim.validation.scores import Score, summarise
from sim.validation.server_suite import ServerSuite
from sim.validation.shipped import peer_error
from sim.validation.speedup import Speedups
from sim.validation.speedup_gates import clone_scores
from sim.validation.steps import StepErrors

Floats = NDArray[np.float64]


class Headline(NamedTuple):
    """Mean absolute error of a set of figures, per cent.

    Attributes:
        target, naive, peer: what is asked, what the simplest model comes to, what another simulator states.
    """

    name: str
    points: int
    mape: float
    target: float | None = None
    naive: float | None = None
    peer: float | None = None


class Cloud(NamedTuple):
    """Pairs of one unit from one source.

    Attributes:
        panel: what they are, with the unit.
        series: whose.
        predicted, measured: (N,).
    """

    panel: str
    series: str
    predicted: Floats
    measured: Floats


#: Target of every gate by its name, per cent.
Limits = Mapping[str, float]

_OPERATORS = ("GEMM", "decode attention", "prefill attention", "experts", "all-reduce")
_STEPS = ("decode", "verify", "mixed")
_CLONES = {"EAGLE-3": "eagle3", "n-gram": "ngram"}


def physics_headlines(report: Report, steps: Sequence[StepErrors], limits: Limits) -> Iterator[Headline]:
    """Kernels of shapes left out of the fit, and whole steps."""
    for operator in _OPERATORS:
        usable = [own for own in report.comparisons if own.operator == operator and own.usable_kernel]
        found, naive = (pooled(usable, which) for which in ("left_out_us", "naive_us"))
        if found is not None:
            name = f"kernels: {operator}, shapes left out"
            limit = limits.get(f"{operator}, pooled")
            yield Headline(name, found.points, found.mape, limit, None if naive is None else naive.mape)
    for kind in _STEPS:
        mine = [(own.left_out or own.shipped, own.naive) for own in steps if own.kind == kind]
        if mine:
            points = sum(ours.points for ours, _ in mine)
            ours, peaks = (float(np.mean([pair[at].mape for pair in mine])) for at in (0, 1))
            limit = next((limit for name, limit in limits.items() if name.startswith(f"{kind} step")), None)
            yield Headline(f"{kind} steps inside an engine", points, ours, limit, peaks)


def physics_clouds(report: Report) -> Iterator[Cloud]:
    """Kernels by operator."""
    for own in report.comparisons:
        predicted = own.left_out_us if own.left_out_us is not None else own.shipped_us
        if own.usable_kernel and predicted is not None:
            yield Cloud("kernels, µs", own.operator, predicted, np.asarray(own.rows.times_us))


def acceptance_headlines(sets: Sequence[DataSet], limits: Limits) -> Iterator[Headline]:
    """Tokens per step of left-out halves; the naive model draws every draft alike."""
    pairs = [(score.model, cloud) for score, cloud in _halves(sets)]
    errors = {model: [np.abs(c.predicted / c.measured - 1) for m, c in pairs if m == model] for model, _ in pairs}
    if "regime" in errors:
        ours = np.concatenate(errors["regime"])
        limit = next((limit for name, limit in limits.items() if "tokens per step" in name), None)
        naive = 100 * float(np.concatenate(errors["i.i.d."]).mean()) if "i.i.d." in errors else None
        yield Headline("tokens per step, left-out halves", ours.size, 100 * float(ours.mean()), limit, naive)


def acceptance_clouds(sets: Sequence[DataSet]) -> list[Cloud]:
    """Tokens per step of left-out halves, K = 1 to 10."""
    return [cloud for score, cloud in _halves(sets) if score.target]


def _halves(sets: Sequence[DataSet]) -> Iterator[tuple[AcceptanceScore, Cloud]]:
    for one in sets:
        for part in one.halves:
            for score in part.scores:
                yield score, Cloud("tokens per step", f"{one.name} {one.method}",
                                   score.expected.tokens_per_step, part.measured.tokens_per_step)  # fmt: skip


def server_headlines(suite: ServerSuite, limits: Limits) -> Iterator[Headline]:
    """Recorded runs, and whole servers by what was measured."""
    recorded = [score for run in suite.runs for score in run.scores if score.quantity.startswith("mean")]
    yield from _headline("latencies of recorded runs, means", recorded, limits.get("recorded runs, worst mean"))
    dense, experts = suite.points.dense, suite.points.experts
    yield from _headline("TPOT of dense servers", _of(dense, "TPOT"), limits.get("TPOT of dense servers, mean"))
    yield from _headline(
        "TPOT of mixtures of experts", _of(experts, "TPOT"), limits.get("TPOT of mixtures of experts, mean")
    )
    yield from _headline("TTFT of servers", _of((*dense, *experts), "TTFT"), limits.get("TTFT of servers, mean"))


def speedup_headlines(suite: Speedups, limits: Limits) -> Iterator[Headline]:
    """Chains over clones by method, and every source."""
    for name, method in _CLONES.items():
        clones, scores = f"clones, {name}, K = 3", clone_scores(suite.found, method, 3)
        peer = peer_error(clones)
        yield from _headline(f"speed-up of {clones}", scores, limits.get(f"{clones}, mean"), peer and peer.percent)
    sources = dict.fromkeys(one.case.row.source for one in suite.found)
    for source in sources:
        mine = [one.speedup for one in suite.found if one.case.row.source == source and one.speedup]
        yield from _headline(f"speed-up, {source.split(' / ')[0]}", mine, None)


def score_clouds(scores: Iterable[Score]) -> list[Cloud]:
    """Scores by quantity and group; shares are not among them, nor plain speeds of unlike units."""
    groups: dict[tuple[str, str], list[Score]] = {}
    for score in scores:
        if panel := _PANELS.get(score.quantity.split(" ")[-1]):
            groups.setdefault((panel, score.group), []).append(score)
    return [
        Cloud(panel, group, np.array([s.predicted for s in own]), np.array([s.measured for s in own]))
        for (panel, group), own in groups.items()
    ]


#: Last word of a quantity -> panel.
_PANELS = {"speed-up": "speed-up", "TPOT": "TPOT, ms", "TTFT": "TTFT, ms", "T_verify/T_plain": "T_verify / T_plain"}


def _of(scores: Sequence[Score], quantity: str) -> list[Score]:
    return [score for score in scores if score.quantity == quantity]


def _headline(
    name: str, scores: Sequence[Score], target: float | None, peer: float | None = None
) -> Iterator[Headline]:
    found = summarise(scores)
    if found is not None:
        yield Headline(name, found.points, found.mape, target, found.naive, found.peer if peer is None else peer)
