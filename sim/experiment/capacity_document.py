"""`capacity.json`: what was asked, what each arm carries, what that costs, and the fleets for a load."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sim.experiment.capacity_search import Rough
from sim.experiment.capacity_setting import Setting
from sim.experiment.carried import Carried, Point, ratio, too_short
from sim.experiment.compare import verdict
from sim.experiment.fleet import Fleet, saved
from sim.experiment.power import energy
from sim.metrics.statistics import Interval
from sim.metrics.summary import Row

Json = dict[str, Any]

#: Columns of the runs that a reader of a capacity wants to see.
_SHOWN = (
    "goodput_frac", "output_throughput", "output_tok_s_gpu", "mean_running", "busy_frac", "p99_ttft_ms", "p99_tpot_ms",
    "p99_e2el_ms",
)  # fmt: skip


def capacity_document(
    setting: Setting, rough: Mapping[str, Rough], found: Mapping[str, Carried], tested: Mapping[str, Sequence[Point]]
) -> Json:
    """Everything about single units; replicas as in the scenario.

    Args:
        setting: the question.
        rough: the rough search, by arm.
        found: the answer of each arm that carries anything.
        tested: the tested loads of each arm with its rows.
    """
    baseline = setting.loaded.scenario.baseline
    arms = {arm: _arm(setting, rough[arm], found.get(arm), tested[arm]) for arm in rough}
    for arm in found:
        if arm != baseline and baseline in found:
            arms[arm]["ratio"] = _ratio(found[arm], found[baseline], setting.confidence)
    return {
        "schema_version": 1,
        "axis": setting.axis.name,
        "unit": setting.axis.unit,
        "slo": {**setting.limits.limits, "percentile": 100 * setting.limits.share},
        "confidence": setting.confidence,
        "baseline": baseline,
        "arms": arms,
    }


def _arm(setting: Setting, rough: Rough, found: Carried | None, tested: Sequence[Point]) -> Json:
    status = _status(setting, found, rough)
    alone = {name: rough.alone[name] for name in _SHOWN}
    document: Json = {"status": status, "capacity": None, "limited_by": "", "alone": alone}
    if status == "never":
        return document | {"limited_by": setting.limits.tightest(rough.alone)}
    if status == "too short":
        document["too_short_from"] = _too_short_from(found, rough)
    if found is None:
        return document
    below = [point for point in tested if point[0] <= _reached(found)]
    document |= {
        "capacity": _interval(found.interval),
        "by_replicate": [None if math.isnan(one.estimate) else one.estimate for one in found.brackets],
        "limited_by": found.limited_by,
        "tested": [load for load, _ in tested],
        "saturated_from": _saturated_from(tested),
    }
    return document | ({"at": _at(setting, *below[-1])} if below else {})


def _too_short_from(found: Carried | None, rough: Rough) -> float:
    """The lowest load at which a run ended before it could tell."""
    brackets = () if found is None else found.brackets
    return min((one.high for one in brackets if one.too_short), default=rough.too_short)


def _reached(found: Carried) -> float:
    """The load up to which an arm was seen to carry."""
    if found.interval is not None:
        return found.interval.estimate
    return min((one.low for one in found.brackets), default=0.0)


def _status(setting: Setting, found: Carried | None, rough: Rough) -> str:
    """`found`, `not resolved` (a wide interval), `never` (not even alone), `too short`, or an open end of the range."""
    if rough.high == 0.0:
        return "never"
    if found.open_end == "too short" if found else not math.isinf(rough.too_short):
        return "too short"
    if found is None or found.open_end == "below":
        return "below range"
    if found.open_end == "above":
        return "above range"
    return "found" if found.half_width <= 2 * setting.half_width else "not resolved"


def _saturated_from(tested: Sequence[Point]) -> float | None:
    """The lowest tested load at which the queue of most replicates grew."""
    growing = {
        load: sum(bool(row["saturated"]) and not too_short(row) for row in rows.values()) for load, rows in tested
    }
    return next((load for load, rows in tested if 2 * growing[load] > len(rows)), None)


def _ratio(arm: Carried, baseline: Carried, confidence: float) -> Json | None:
    found = ratio(arm, baseline, confidence)
    shown = _interval(found)
    return None if shown is None else {**shown, "verdict": verdict(found)}


def _interval(found: Interval | None) -> Json | None:
    if found is None:
        return None
    return {"value": found.estimate, "ci_low": found.low, "ci_high": found.high, "num_replicates": found.num}


def _at(setting: Setting, load: float, rows: Mapping[int, Row]) -> Json:
    """Means over the replicates at one load, and what tokens cost there."""
    means = {name: _mean(row[name] for row in rows.values()) for name in _SHOWN}
    return {"load": load, **means, **_costs(setting, list(rows.values()))}


def _costs(setting: Setting, rows: Sequence[Row]) -> Json:
    """Dollars and joules per output token, of all GPUs."""
    hardware = setting.loaded.scenario.hardware
    gpus, tokens = int(str(rows[0]["num_gpus"])), _mean(row["output_throughput"] for row in rows)
    if not tokens:
        return {"num_gpus": gpus}
    price = hardware.cost_per_gpu_hour_usd
    busy, prefill = (_mean(row[name] for row in rows) or 0.0 for name in ("busy_frac", "prefill_time_frac"))
    per_hour = None if price is None else price * gpus
    return {
        "num_gpus": gpus,
        "usd_per_hour": per_hour,
        "usd_per_mtok_output": None if per_hour is None else per_hour / 3600 / tokens * 1e6,
        "energy": asdict(energy(hardware.load().tdp_w, gpus, busy, prefill, tokens)),
    }


def _mean(values: Iterable[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def fleet_document(setting: Setting, load: float, fleets: Mapping[str, Fleet], found: Mapping[str, Carried]) -> Json:
    """The fleets for a load.

    Args:
        setting: the question.
        load: that all replicas carry together.
        fleets: of the arms whose capacity is known.
        found: capacities of single units.
    """
    scenario = setting.loaded.scenario
    gpus, baseline = scenario.engine.tensor_parallel_size, scenario.baseline
    arms = {arm: _fleet(setting, fleet, gpus) for arm, fleet in fleets.items()}
    for arm in fleets:
        if arm != baseline and baseline in fleets:
            arms[arm]["gpus_saved"] = _saved(fleets[arm], fleets[baseline], gpus, found[arm], found[baseline], setting)
    missing = [arm for arm in scenario.arms if arm not in fleets]
    return {"load": load, "unit": setting.axis.unit, "router": scenario.router.kind, "arms": arms, "unknown": missing}


def _fleet(setting: Setting, fleet: Fleet, gpus: int) -> Json:
    tried = [
        {
            "replicas": one.replicas,
            "carried": one.carried,
            "too_short": one.too_short,
            "carried_by": one.carried_by,
            "num_replicates": len(one.by_replicate),
            "saturated": sum(bool(row["saturated"]) for row in one.rows.values()),
            "goodput_frac": _mean(row["goodput_frac"] for row in one.rows.values()),
            "p99_ttft_ms": _mean(row["p99_ttft_ms"] for row in one.rows.values()),
            "p99_tpot_ms": _mean(row["p99_tpot_ms"] for row in one.rows.values()),
        }
        for one in fleet.tried
    ]
    document: Json = {"expected_replicas": fleet.expected, "replicas": fleet.replicas, "gpus": None, "tried": tried}
    chosen = next((one for one in fleet.tried if one.replicas == fleet.replicas), None)
    if chosen is None:
        return document
    return document | {"gpus": chosen.replicas * gpus, **_costs(setting, list(chosen.rows.values()))}


def _saved(ours: Fleet, theirs: Fleet, gpus: int, arm: Carried, baseline: Carried, setting: Setting) -> Json:
    """GPUs that the arm needs fewer than the baseline: counted, and as the paired ratio of the capacities."""
    by_replicate = list(saved(ours, theirs, gpus))
    few, many = ours.replicas, theirs.replicas
    return {
        "value": None if few is None or many is None else (many - few) * gpus,
        "by_replicate": by_replicate,
        "num_replicates": len(ours.by_replicate),
        "gpus_per_gpu": _inverse(_ratio(arm, baseline, setting.confidence)),
    }


def _inverse(found: Json | None) -> Json | None:
    """GPUs of the arm for one of the baseline at the same load, fractions allowed."""
    if found is None or not found["ci_low"]:
        return None
    return {"value": 1 / found["value"], "ci_low": 1 / found["ci_high"], "ci_high": 1 / found["ci_low"]}
