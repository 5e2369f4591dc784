"""What each way of choosing K leaves on the table: the rows of `regret.csv`.

Arms that differ in nothing but K and its rule are compared with their oracle and with the best fixed K among them
(plain decoding counts as K = 0), paired over replicates. Regret is the share of the reference's performance that is
lost.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sim.experiment.compare import Runs, is_lower_better, is_offered_load, pairs, speedup
from sim.scenario.arms import Arm

METRICS = ("output_throughput", "mean_tpot_ms")

REGRET_COLUMNS = (
    "arm", "rule", "k_mean", "k_switches", "metric", "against", "reference", "regret", "ci_low", "ci_high", "num_pairs",
)  # fmt: skip

#: Keys of `speculative_config` that only say how many tokens are drafted.
K_KEYS = frozenset({"num_speculative_tokens", "num_speculative_tokens_per_batch_size"})


@dataclass(frozen=True, slots=True)
class Contest:
    """Arms that differ in K and its rule alone.

    Attributes:
        rules: arms whose K changes, the oracle left out.
        fixed: arms with one K, those without speculation included.
        oracle: the arm that knows the future, or None.
    """

    rules: tuple[str, ...]
    fixed: tuple[str, ...]
    oracle: str | None

    @property
    def judged(self) -> tuple[str, ...]:
        """Arms that regret is worked out for."""
        several = self.fixed if len(self.fixed) > 1 else ()
        return (*self.rules, *several, *([self.oracle] if self.oracle else []))


def same_but_for_k(arm: Arm) -> str:
    """Equal for arms that differ in K and its rule alone."""
    config = arm.speculative_config.model_dump(mode="json", exclude=set(K_KEYS))
    return repr((config, arm.acceptance, arm.class_acceptance, arm.verification))


def contests(arms: Mapping[str, Arm]) -> list[Contest]:
    """Groups in which K is a choice: one arm changes it, or several fix it differently."""
    groups: dict[str, list[str]] = {}
    for name, arm in arms.items():
        if arm.speculates:
            groups.setdefault(same_but_for_k(arm), []).append(name)
    plain = [name for name, arm in arms.items() if not arm.speculates]
    found = [_contest(names, plain, arms) for names in groups.values()]
    return [one for one in found if one.rules or len(one.fixed) > len(plain) + 1]


def _contest(names: Sequence[str], plain: Sequence[str], arms: Mapping[str, Arm]) -> Contest:
    kinds = {name: arms[name].k_rule.kind for name in names}
    rules = tuple(name for name in names if kinds[name] not in ("fixed", "oracle"))
    fixed = tuple(name for name in names if kinds[name] == "fixed")
    oracles = [name for name in names if kinds[name] == "oracle"]
    return Contest(rules, (*plain, *fixed), oracles[0] if oracles else None)


def regret_rows(
    runs: Runs, cells: Iterable[tuple[str, Mapping[str, object]]], arms: Mapping[str, Arm], confidence: float
) -> list[dict[str, object]]:
    """One row per cell, arm, metric and reference.

    A throughput that only repeats the offered load is left out: nobody can lose any.

    Args:
        runs: all finished runs.
        cells: (cell_id, varied fields) in order.
        arms: the specs, by name.
        confidence: level of the intervals.
    """
    rows, groups = [], contests(arms)
    for cell_id, vary in cells:
        head: dict[str, object] = {"cell_id": cell_id, **{f"vary.{key}": value for key, value in vary.items()}}
        for contest in groups:
            rows += [head | row for row in _rows(runs, cell_id, contest, arms, confidence)]
    return rows


def _rows(
    runs: Runs, cell_id: str, contest: Contest, arms: Mapping[str, Arm], confidence: float
) -> Iterator[dict[str, object]]:
    for metric in METRICS:
        if is_offered_load(runs, cell_id, contest.judged, metric):
            continue
        references = {"oracle": contest.oracle, "best_fixed": _best(runs, cell_id, contest.fixed, metric)}
        for arm in contest.judged:
            for against, reference in references.items():
                row = _row(runs, cell_id, arm, reference, metric, confidence)
                if row:
                    yield _about(runs, cell_id, arm, arms) | {"metric": metric, "against": against} | row


def _best(runs: Runs, cell_id: str, names: Sequence[str], metric: str) -> str | None:
    """The arm with the best mean; chosen on the same runs, so regret against it is overstated a little."""
    means = {name: mean for name in names if (mean := _mean(runs, cell_id, name, metric)) is not None}
    choose = min if is_lower_better(metric) else max
    return choose(means, key=means.__getitem__) if means else None


def _mean(runs: Runs, cell_id: str, arm: str, column: str) -> float | None:
    values = [row.get(column) for row in runs.get((cell_id, arm), {}).values()]
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _about(runs: Runs, cell_id: str, arm: str, arms: Mapping[str, Arm]) -> dict[str, object]:
    means = {column: _mean(runs, cell_id, arm, column) for column in ("k_mean", "k_switches")}
    return {"arm": arm, "rule": arms[arm].k_rule.kind if arms[arm].speculates else "plain", **means}


def _row(
    runs: Runs, cell_id: str, arm: str, reference: str | None, metric: str, confidence: float
) -> dict[str, object] | None:
    """Regret of an arm, None without a reference, without pairs, or against itself."""
    if reference is None or reference == arm:
        return None
    gain = speedup(pairs(runs, cell_id, arm, reference, metric).values(), metric, confidence)
    if gain is None:
        return None
    low, high = (None if end is None else 1.0 - end for end in (gain.high, gain.low))
    return {
        "reference": reference,
        "regret": 1.0 - gain.estimate,
        "ci_low": low,
        "ci_high": high,
        "num_pairs": gain.num,
    }
