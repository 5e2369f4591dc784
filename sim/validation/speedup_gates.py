"""What the suite `speedup` is meant to reach."""

from collections.abc import Iterable, Sequence

from sim.validation.scores import SHARES, Gate, Score, mean_gate, worst_gate
from sim.validation.speedup import Found, Speedups
from sim.validation.speedup_findings import KSweep, Stop, Trend, k_sweeps, stops, trends

#: Drafters whose curves over batches of clones have a target, K = 3.
_CLONES = {"EAGLE-3": "eagle3", "n-gram": "ngram"}


def clone_scores(found: Iterable[Found], method: str, num_drafts: int) -> list[Score]:
    """Speed-ups of chains over batches of clones."""
    return [
        one.speedup
        for one in found
        if one.speedup
        and one.case.drive == "clones"
        and not one.case.tree
        and (one.case.config["method"], one.case.num_drafts) == (method, num_drafts)
    ]


def speedup_gates(suite: Speedups, shares: Sequence[Score]) -> list[Gate]:
    """All of them."""
    found, scores = suite.found, suite.scores
    plain = {one.case.row.case_id for one in found if one.case.drive == "clones"}
    return [
        *(gate for name, method in _CLONES.items() for gate in _clone_gates(name, clone_scores(found, method, 3))),
        *_sweep_gates(k_sweeps(found)),
        _largest("T_verify / T_plain, largest difference", 0.05, _differences(scores, "T_verify/T_plain"), ""),
        *_trend_gates(trends(found)),
        worst_gate("time shares, worst", 4.0, [score for score in shares if score.quantity in SHARES], " points"),
        _stop_gate(stops(found)),
        worst_gate(
            "plain decoding of batches of clones, worst", 6.0,
            [score for score in scores if score.quantity == "plain" and score.name in plain],
        ),
    ]  # fmt: skip


def _clone_gates(name: str, scores: Sequence[Score]) -> Iterable[Gate]:
    yield mean_gate(f"clones, {name}, K = 3, mean", 3.0, scores)
    yield worst_gate(f"clones, {name}, K = 3, worst", 8.0, scores)


def _sweep_gates(sweeps: Sequence[KSweep]) -> Iterable[Gate]:
    """The distance between the best K counts in steps of what was measured."""
    apart = [abs(one.ks.index(one.predicted) - one.ks.index(one.measured)) for one in sweeps]
    yield _largest("best K of sweeps, measured K apart", 1.0, apart, "")
    yield _largest("regret of the predicted K", 2.0, [one.regret for one in sweeps])


def _trend_gates(found: Sequence[Trend]) -> Iterable[Gate]:
    moving = [one for one in found if one.moves]
    wrong = float(sum(not one.right for one in moving)) if moving else None
    yield Gate(
        f"trends over the batch with the wrong sign, of {len(moving)} that move, {len(found)} in all", 0.0, wrong, ""
    )


def _stop_gate(found: Sequence[Stop]) -> Gate:
    """Trees that cross, measured or predicted; a crossing beyond the measured loads counts at the largest of them."""
    ends = [
        (one.predicted or one.largest, one.measured or one.largest)
        for one in found
        if one.tree and (one.predicted or one.measured)
    ]
    return _largest("crossing batch of trees, factor", 1.3, [max(a / b, b / a) for a, b in ends], "")


def _differences(scores: Iterable[Score], quantity: str) -> list[float]:
    return [abs(score.predicted - score.measured) for score in scores if score.quantity == quantity]


def _largest(name: str, limit: float, values: Sequence[float], unit: str = " %") -> Gate:
    return Gate(name, limit, max(values, default=None), unit)
