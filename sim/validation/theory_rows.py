"""Rows that cannot be simulated and state what theory needs: chains of a draft model at batch 1, with a rate alpha.

    speed-up = Omega(alpha, K) / (K c + 1)        (Leviathan et al., arXiv 2211.17192, theorem 3.8)

A draft model costs the same share c of a target pass whatever it drafts: the first row of a model and drafter sets c,
the others are predicted. That checks the formula and the source's own rates, not this simulator: advisory.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from sim.errors import SimError
from sim.theory.tokens import expected_tokens, improvement
from sim.validation import stated_method
from sim.validation.cases import NotRun
from sim.validation.published import PublishedRow
from sim.validation.scores import Score


def theory_scores(not_run: Sequence[NotRun]) -> tuple[list[Score], list[NotRun]]:
    """What theory says of rows that were not run, and the rows that it says nothing of, or that set a cost."""
    groups: dict[tuple[str, ...], list[PublishedRow]] = defaultdict(list)
    for one in not_run:
        if _states_enough(one.row):
            groups[one.row.source, one.row.target_model, one.row.gpu, one.row.method].append(one.row)
    scores = [score for rows in groups.values() for score in _predicted(rows)]
    known = {score.name for score in scores}
    return scores, [one for one in not_run if one.row.case_id not in known]


def _states_enough(row: PublishedRow) -> bool:
    try:
        chain = stated_method.method(row.method) == "draft_model" and "tree" not in stated_method.drafts(row.k_or_tree)
        return chain and row.load == "1" and row.measured_speedup is not None and _rate(row) is not None
    except SimError:
        return False


def _rate(row: PublishedRow) -> float | None:
    """Alpha, where the row states one number."""
    try:
        rate = float(row.acceptance_rate)
    except ValueError:
        return None
    return rate if math.isfinite(rate) and 0 < rate < 1 else None


def _predicted(rows: Sequence[PublishedRow]) -> Iterator[Score]:
    first, *others = [(row, _rate(row) or 0.0, _drafts(row), row.measured_speedup or 1.0) for row in rows]
    row, alpha, k, measured = first
    cost = max((expected_tokens(alpha, k) / measured - 1) / k, 0.0)
    for other, alpha, k, measured in others:
        yield Score(
            other.case_id, f"{other.source}, {other.table}: {other.target_model}, {other.gpu}, {other.engine}",
            "speed-up", other.load, improvement(alpha, k, cost), measured,
            remarks=f"alpha {alpha:g}, K = {k}; c = {cost:.3f} from {row.case_id}",
        )  # fmt: skip


def _drafts(row: PublishedRow) -> int:
    return int(str(stated_method.drafts(row.k_or_tree)["num_speculative_tokens"]))
