"""Shorthands and defaults that depend on what else a scenario says; works on plain data, before validation."""

from collections.abc import Mapping
from typing import Any

from sim.scenario.preset_defaults import fill_preset
from sim.scenario.references import fill_references

#: `hardware: h100-sxm` stands for `hardware: {gpu: h100-sxm}`.
SHORTHANDS = {"hardware": "gpu", "model": "target", "cost_model": "kind"}
#: Concurrencies of the default sweep.
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONCURRENCY_KEY = "workload.arrivals.max_concurrency"
#: At an equal arrival rate the throughput of every arm is the offered load: only latencies can tell them apart.
OPEN_LOOP_OBJECTIVES = ("mean_tpot_ms", "mean_e2el_ms")
DEFAULT_ARRIVALS = {"kind": "closed", "max_concurrency": 64}

#: vLLM's names of KV cache formats and ours.
KV_CACHE_DTYPES = {
    "float16": "fp16", "bfloat16": "bf16", "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_inc": "fp8",
}  # fmt: skip


def fill_defaults(data: Any) -> Any:
    """A copy of a scenario's plain data with shorthands spelt out and dependent defaults filled in.

    Anything of an unexpected type is left as it is, for validation to report.
    """
    if not isinstance(data, Mapping):
        return data
    full = dict(data)
    for section, field in SHORTHANDS.items():
        if isinstance(full.get(section), str):
            full[section] = {field: full[section]}
    full.setdefault("cost_model", {"kind": "roofline"})
    _fill_arms(full)
    fill_preset(full)
    fill_references(full)
    _fill_sweep(full)
    _fill_kv_cache_dtype(full)
    return full


def _fill_arms(full: dict[str, Any]) -> None:
    arms = full.get("arms")
    if not isinstance(arms, Mapping):
        return
    arms = full["arms"] = {name: {} if arm is None else arm for name, arm in arms.items()}
    if "baseline" not in full:
        plain = [name for name, arm in arms.items() if is_plain(arm)]
        full["baseline"] = "plain" if "plain" in plain else (plain or [""])[0]


def is_plain(arm: Any) -> bool:
    """Whether an arm, as plain data, has no speculation."""
    if not isinstance(arm, Mapping):
        return False
    config = arm.get("speculative_config")
    return config is None or (isinstance(config, Mapping) and config.get("method") == "plain")


def _fill_sweep(full: dict[str, Any]) -> None:
    """No arrivals given: a closed loop, over concurrencies unless something else is varied."""
    workload, sweep = full.get("workload", {}), full.get("sweep", {})
    if not isinstance(workload, Mapping) or not isinstance(sweep, Mapping):
        return
    if "arrivals" not in workload:
        workload = full["workload"] = {**workload, "arrivals": DEFAULT_ARRIVALS}
        if "vary" not in sweep:
            sweep = {**sweep, "vary": {CONCURRENCY_KEY: list(CONCURRENCIES)}}
    if sweep.get("vary") and "breakeven" not in sweep:
        arrivals = workload.get("arrivals")
        closed = not isinstance(arrivals, Mapping) or arrivals.get("kind") == "closed"
        sweep = {**sweep, "breakeven": {} if closed else {"objectives": list(OPEN_LOOP_OBJECTIVES)}}
    full["sweep"] = sweep


def _fill_kv_cache_dtype(full: dict[str, Any]) -> None:
    """`engine.kv_cache_dtype` counts where `model.kv_cache_dtype` says nothing."""
    engine, model = full.get("engine"), full.get("model")
    if not isinstance(engine, Mapping) or not isinstance(model, Mapping):
        return
    dtype = engine.get("kv_cache_dtype")
    if isinstance(dtype, str) and dtype in KV_CACHE_DTYPES and model.get("kv_cache_dtype", "auto") == "auto":
        full["model"] = {**model, "kv_cache_dtype": KV_CACHE_DTYPES[dtype]}
