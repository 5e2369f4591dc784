"""The page of `specsim validate speedup`."""

from collections.abc import Sequence

from sim.validation.engine_cells import FITTED, is_fitted
from sim.validation.markdown import table
from sim.validation.scores import SHARES, Score
from sim.validation.speedup import Speedups
from sim.validation.speedup_findings import KSweep, Stop, Trend, k_sweeps, stops, trends
from sim.validation.speedup_gates import clone_scores, speedup_gates
from sim.validation.suite_page import (
    NO_PICTURES,
    Pictures,
    gate_table,
    page,
    reasons,
    score_table,
    shown,
    summary_table,
)

_INTRODUCTION = """# Speed-up: published comparisons, predicted and measured

Written by `specsim validate speedup`. Every case goes through the simulated server as its source drove the real one:
**clones** are batches of copies of one request, timed from the first prompt to the last token; **closed** loops of so
many users; **open** loops of Poisson arrivals; **steps** are decode steps of one uniform batch, with the drafter's
time as published. Rows of trust 4 and 5 are scored; those of trust 3 are advisory.

- **error** in per cent (shares: points), with a bar, a character a per cent. **band**: one sigma of the model's own
  error.
- **naive**: the same with datasheet peaks and no fixed costs. **peer**: another simulator's error, where it published
  one.
- Acceptance is the source's: recorded sequences or the mean a row states, also at another load. *Carried over from
  K*: the mean at another K, with the law of a shipped profile. *Solved at b* (or at K): no row states one, so the
  mean that explains the smallest load, or the smallest K, predicts the others; that row is not scored. Nothing else is
  fitted here, but the engine profiles `vllm-0.10` and `sglang` were fitted to some of these very cells: see
  [README.md](README.md).
"""

_ADVISORY = """## Advisory

Run like the others and outside of all targets: rows of trust 3 (research prototypes, second-hand figures), and rows
whose tree is that of the engine's documents, not of the row. Most are prototypes on eager kernels, which are 2 to 3
times slower a step than a serving engine, so that their speed-ups come close to the tokens per step: engine profile
`hf`, whose times are orders of magnitude (its draft pass is from one row of the EAGLE-3 paper's table 1, the rest was
not fitted). Where such a row names no GPU, an A100-80GB is assumed, or as many as hold the weights. These tables differ
among each other by more than the model does: for EAGLE-3 on Vicuna-13B the paper has 5.58 at 6.65 tokens a step,
the Spec-Bench leaderboard 3.02 at 5.71.
"""

_THEORY = """## Theory where the model cannot be described

Chains of a draft model at batch 1 that state alpha: speed-up = Omega(alpha, K) / (K c + 1). The cost c of a drafter is
from its first row, the others are predicted. Advisory: it checks the formula and the source's rates against each
other.
"""


def render_speedup(suite: Speedups, shares: Sequence[Score], pictures: Pictures = NO_PICTURES) -> str:
    """The whole page."""
    curves = shown(pictures, "speedup-clones", "speedup-served", "speedup-steps")
    return page(
        _INTRODUCTION,
        "## Targets\n\n" + gate_table(speedup_gates(suite, shares)),
        f"## Curves\n\n{curves}" if curves else "",
        shown(pictures, "speedup-groups"),
        "## By source\n\n" + summary_table(speedup_groups(suite, shares)),
        "## Best K of sweeps\n\n" + _sweep_table(k_sweeps(suite.found)),
        "## Where speculation stops paying\n\n" + _stop_table(stops(suite.found)),
        "## Which way the speed-up goes with the batch\n\n" + _trend_table(trends(suite.found)),
        *(f"## {name}\n\n{score_table(scores)}" for name, scores in _by_group(suite.scores)),
        shown(pictures, "speedup-shares"),
        *(f"## Time shares: {name}\n\n{score_table(scores)}" for name, scores in _by_group(shares)),
        _advisory(suite),
        *(
            f"{_THEORY}\n{summary_table([('all', suite.theory)])}\n\n{score_table(suite.theory)}"
            for _ in suite.theory[:1]
        ),
        "## Not run\n\n" + reasons((one.row.case_id, one.reason) for one in suite.not_run),
    )


def _advisory(suite: Speedups) -> str:
    groups = _by_group(suite.advisory_scores)
    if not groups:
        return ""
    summaries = [
        (f"{name}: {quantity}", [score for score in scores if score.quantity == quantity])
        for name, scores in groups
        for quantity in dict.fromkeys(score.quantity for score in scores)
    ]
    tables = [f"### {name}\n\n{score_table(scores)}" for name, scores in groups]
    return "\n\n".join([_ADVISORY.strip(), summary_table(summaries), *tables])


def _by_group(scores: Sequence[Score]) -> list[tuple[str, list[Score]]]:
    groups: dict[str, list[Score]] = {}
    for score in scores:
        groups.setdefault(score.group, []).append(score)
    return list(groups.items())


def speedup_groups(suite: Speedups, shares: Sequence[Score]) -> list[tuple[str, list[Score]]]:
    """What is summarised: each source by quantity, chains over clones by method, fitted engines, shares."""
    found = [
        (f"{name}: {quantity}", [score for score in scores if score.quantity == quantity])
        for name, scores in _by_group(suite.scores)
        for quantity in dict.fromkeys(score.quantity for score in scores)
    ]
    drafts = sorted(
        {(str(one.case.config["method"]), one.case.num_drafts) for one in suite.found if one.case.drive == "clones"}
    )
    found += [(f"clones, {method}, K = {k}", clone_scores(suite.found, method, k)) for method, k in drafts]
    for engine in FITTED:
        mine = [one for one in suite.found if one.case.engine == engine and one.speedup]
        for what, yes in (("fitted to", True), ("left out", False)):
            scores = [one.speedup for one in mine if one.speedup and is_fitted(one.case) is yes]
            found.append((f"speed-ups, engine {engine}, {what}", scores))
    found += [(f"time shares: {quantity}", [s for s in shares if s.quantity == quantity]) for quantity in SHARES]
    return found


def _sweep_table(sweeps: Sequence[KSweep]) -> str:
    rows = [
        [one.name, ", ".join(map(str, one.ks)), str(one.predicted), str(one.measured), f"{one.regret:.1f} %"]
        for one in sweeps
    ]
    return table(["sweep", "K", "best predicted", "best measured", "regret"], rows)


def _stop_table(found: Sequence[Stop]) -> str:
    rows = [[one.name, _load(one.predicted, one), _load(one.measured, one), _factor(one)] for one in found]
    return table(["curve", "predicted", "measured", "factor"], rows)


def _load(value: float | None, stop: Stop) -> str:
    return f"above {stop.largest:g}" if value is None else f"{value:.1f}"


def _factor(stop: Stop) -> str:
    return "" if stop.factor is None else f"{stop.factor:.2f}"


def _trend_table(found: Sequence[Trend]) -> str:
    rows = [
        [one.name, f"x {one.predicted:.2f}", f"x {one.measured:.2f}", _sign(one)] for one in found
    ]  # fmt: skip
    return table(["curve", "predicted", "measured", "sign"], rows)


def _sign(trend: Trend) -> str:
    if not trend.moves:
        return "does not move"
    return "right" if trend.right else "**wrong**"
