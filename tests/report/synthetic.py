"""Writes a results folder with plausible invented numbers, in the layout the experiment floor writes for real."""

import csv
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

KEY = "workload.arrivals.max_concurrency"
LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RATES = {"plain": [], "eagle3-k3": [0.74, 0.52, 0.37], "eagle3-k7": [0.74, 0.52, 0.37, 0.26, 0.18, 0.13, 0.09]}
OPS = ("linear", "attention", "lm_head", "collective", "fixed")
METRICS = ("output_throughput", "request_throughput", "total_token_throughput", "request_goodput", "tok_s_user_median")
LATENCIES = ("ttft", "tpot", "itl", "e2el")
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}


def step_parts_s(arm: str, batch: float) -> dict[str, float]:
    """Invented step times: memory bound at first, compute bound from about 90 tokens."""
    k = len(RATES[arm])
    tokens = batch * (1 + k)
    return {
        "draft": k * (3e-4 + 4e-6 * batch),
        "linear": max(4.6e-3, 5.0e-5 * tokens),
        "attention": 5e-5 * batch,
        "lm_head": 4e-4 + 1.1e-6 * tokens,
        "collective": 0.0,
        "fixed": 8e-4 + 2e-6 * tokens,
        "host": 3e-4 + 2e-5 * batch,
    }


def write_results(
    root: Path,
    loads: tuple[float, ...] = LOADS,
    arms: tuple[str, ...] = tuple(RATES),
    replicates: int = 5,
    key: str | None = KEY,
    failed: dict[float, str] | None = None,
    name: str = "quickstart",
    rename: dict[str, str] | None = None,
    saturated: tuple[float, ...] = (),
    lossy: str = "",
) -> Path:
    """One experiment; `rename` maps arm names to (hostile) display names, `failed` maps loads to reasons."""
    failed, rename = failed or {}, rename or {}
    rules = {arm: {"kinds": ["typical" if arm == lossy else "greedy_draft"], "lossless": arm != lossy} for arm in arms}
    rng = np.random.default_rng(7)
    rows: list[dict[str, Any]] = []
    cells = []
    for index, load in enumerate(loads):
        cell = f"{index:012x}"
        vary = {key: load} if key else {}
        if load in failed:
            cells.append({"cell_id": cell, "state": "failed", "vary": vary, "reason": failed[load]})
            continue
        cells.append({"cell_id": cell, "state": "done", "vary": vary})
        noise = rng.normal(0, 0.01, replicates)
        for arm in arms:
            for rep in range(replicates):
                row = _run(root, cell, rename.get(arm, arm), arm, rep, float(load), noise[rep], rng)
                row |= {f"vary.{k}": v for k, v in vary.items()} | {"saturated": load in saturated}
                rows.append({"experiment": name, "is_baseline": arm == "plain"} | row)
    _write_csv(root / "summary.csv", rows)
    ratios = _compare(rows, [rename.get(a, a) for a in arms if a != "plain"], rename.get("plain", "plain"), key)
    _write_csv(root / "compare.csv", ratios)
    (root / "breakeven.json").write_text(json.dumps(_break_even(ratios, loads, arms, rename, key)))
    (root / "manifest.json").write_text(
        json.dumps(
            {
                "schema_version": 1,
                "tool_version": "0.1.0",
                "git_rev": "3fbc696",
                "python": "3.11.7",
                "packages": {"numpy": "2.4.0"},
                "command": "specsim run quickstart",
                "experiment": name,
                "verification": {rename.get(a, a): rules[a] for a in arms if a != "plain"},
                "seed": 0,
                "scenario_hash": "0f" * 16,
                "status": "partial" if failed else "done",
                "arms": [rename.get(a, a) for a in arms],
                "baseline": rename.get("plain", "plain"),
                "replicates": replicates,
                "cost_profile": {"profile": "h100_sxm/bf16", "relative_error": 0.08, "digest": "ab" * 32},
                "warnings": ["KV pool: 256 requests of typical length fill 71 % of it"],
                "cells": cells,
            }
        )
    )
    (root / "timing.json").write_text(json.dumps({"wall_s": 12.3}))
    text = f"schema_version: 1\nname: {json.dumps(name)}\nseed: 0\n"
    text += "hardware: {gpu: h100-sxm}\nmodel: {target: llama-3.1-8b}\n"
    text += "engine: {tensor_parallel_size: 1, max_num_seqs: 256}\n"
    text += "workload:\n  trace: azure2023-conv\n  arrivals: {kind: closed, max_concurrency: 64}\n"
    text += "slo: {ttft: 2000, tpot: 50, e2el: null, percentile: 99}\n"
    (root / "scenario.yaml").write_text(text)
    (root / "scenario.resolved.yaml").write_text(text)
    return root


def _run(
    root: Path, cell: str, shown: str, arm: str, rep: int, load: float, noise: float, rng: np.random.Generator
) -> dict[str, Any]:
    rates = RATES[arm]
    length = 1 + sum(rates) * (1 + rng.normal(0, 0.006))
    parts = step_parts_s(arm, load)
    step = sum(parts.values()) * (1 + noise + rng.normal(0, 0.003))
    n, out = 240, 200.0
    jitter = rng.lognormal(0, 0.28, n)
    tpot = 1e3 * step / length * jitter * 1.04
    ttft = 1e3 * (step * 1.5 + 0.012 + 2e-4 * load) * rng.lognormal(0, 0.5, n)
    e2el = ttft + tpot * (out - 1)
    throughput = load * length / step * 0.96
    folder = root / "cells" / cell / shown.replace("/", "_") / f"r{rep}"
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame({"ttft_ms": ttft, "tpot_ms": tpot, "e2el_ms": e2el})
    frame["output_tokens"], frame["is_measured"], frame["status"] = int(out), np.arange(n) >= 24, "finished"
    frame.to_parquet(folder / "requests.parquet")
    t = np.arange(0, 60, 0.1)
    running = np.minimum(load, np.round(load * (1 - np.exp(-t / 2)) + rng.normal(0, 0.02 * load, t.size))).clip(0)
    pd.DataFrame(
        {"t_s": t, "running": running, "waiting": (load - running).clip(0), "kv_usage": running / 360}
    ).to_parquet(folder / "timeline.parquet")
    edges = np.geomspace(0.1, 1e4, 161)
    counts = np.histogram(1e3 * step * rng.lognormal(0, 0.2, 4000), edges)[0]
    row: dict[str, Any] = {
        "cell_id": cell, "arm": shown, "replicate": rep, "seed": rep, "max_concurrency": load, "completed": n - 24,
        "failed": 0,
        "output_throughput": throughput, "request_throughput": throughput / out,
        "total_token_throughput": 5 * throughput,
        "request_goodput": throughput / out * 0.99, "tok_s_user_median": 1e3 / float(np.median(tpot)),
        "output_tok_s_gpu": throughput, "mean_running": load * 0.97, "kv_usage_p99": load / 350, "preemptions": 0,
        "spec_decode_acceptance_length": length if rates else "", "tokens_per_step": length,
    }  # fmt: skip
    for metric, values in (("ttft", ttft), ("tpot", tpot), ("itl", 1e3 * step * jitter), ("e2el", e2el)):
        for stat, number in (
            ("mean", values.mean()), ("median", np.median(values)), ("p99", np.percentile(values, 99)),
        ):  # fmt: skip
            row[f"{stat}_{metric}_ms"] = float(number)
    conditional = [rate / before for rate, before in zip(rates, [1.0, *rates], strict=False)]
    survive = [1.0, *rates, 0.0]
    result = {
        "summary": row,
        "acceptance": {
            "per_position_acceptance_rates": rates,
            "conditional_acceptance_rates": conditional,
            "histogram": [round(5000 * (a - b)) for a, b in pairwise(survive)] if rates else [],
        },
        "step_time_s": {group: 1000 * seconds for group, seconds in parts.items()},
        "itl_histogram": {"edges_ms": edges.tolist(), "counts": counts.tolist()},
        "memory": {
            "total": 80 * 2**30, "usable": 72 * 2**30, "target_weights": 16060522496,
            "drafter_weights": 849346560 if rates else 0, "activations": 2 * 2**30, "graphs": 2**30,
            "kv_pool": 54 * 2**30 - (849346560 if rates else 0), "kv_bytes_per_token": 135168 if rates else 131072,
            "num_kv_blocks": 25633 if rates else 27000, "block_size": 16,
        },
        "notes": [],
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(result))
    return row


def _compare(rows: list[dict[str, Any]], arms: list[str], baseline: str, key: str | None) -> list[dict[str, Any]]:
    metrics = [*METRICS, *(f"{stat}_{name}_ms" for stat in ("mean", "median", "p99") for name in LATENCIES)]
    out = []
    for cell in dict.fromkeys(row["cell_id"] for row in rows):
        here = [row for row in rows if row["cell_id"] == cell]
        for arm in arms:
            for metric in metrics:
                a = np.array([row[metric] for row in here if row["arm"] == arm])
                b = np.array([row[metric] for row in here if row["arm"] == baseline])
                logs = np.log(b / a) if metric.endswith("_ms") else np.log(a / b)
                half = T95[len(logs) - 1] * logs.std(ddof=1) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
                low, high = math.exp(logs.mean() - half), math.exp(logs.mean() + half)
                verdict = "better" if low > 1 else "worse" if high < 1 else "not resolved"
                out.append(
                    {"cell_id": cell} | ({f"vary.{key}": here[0][f"vary.{key}"]} if key else {})
                    | {"arm": arm, "baseline": baseline, "metric": metric, "arm_value": a.mean(),
                       "baseline_value": b.mean(), "speedup": math.exp(logs.mean()), "ci_low": low, "ci_high": high,
                       "num_pairs": len(logs), "verdict": verdict}
                )  # fmt: skip
    return out


def _break_even(
    ratios: list[dict[str, Any]],
    loads: tuple[float, ...],
    arms: tuple[str, ...],
    rename: dict[str, str],
    key: str | None,
) -> dict[str, Any]:
    if key is None:
        return {"axis": None, "confidence": 0.95, "arms": {}, "analytic": {}}
    answer: dict[str, Any] = {"axis": key, "confidence": 0.95, "arms": {}, "analytic": {}}
    for arm in arms:
        if arm == "plain":
            continue
        shown = rename.get(arm, arm)
        answer["arms"][shown] = {
            objective: _crossing([r for r in ratios if r["arm"] == shown and r["metric"] == objective], key)
            for objective in ("output_throughput", "mean_tpot_ms")
        }
        grid = np.geomspace(1, 256, 33)
        speed = [
            (1 + sum(RATES[arm])) * sum(step_parts_s("plain", b).values()) / sum(step_parts_s(arm, b).values())
            for b in grid
        ]
        answer["analytic"][shown] = {
            "batch": grid.tolist(), "speedup": speed, "band_low": [0.93 * s for s in speed],
            "band_high": [1.07 * s for s in speed], "context_tokens": 1200, "crossings": [], "status": "crosses",
        }  # fmt: skip
    return answer


def _crossing(rows: list[dict[str, Any]], key: str) -> dict[str, Any]:
    x = [row[f"vary.{key}"] for row in rows]
    gains = [row["speedup"] for row in rows]
    best = int(np.argmax(gains))
    base = {
        "range_tested": [min(x), max(x)], "max_gain": gains[best], "at": x[best],
        "capacity_reached_first": False, "crossings": [],
    }  # fmt: skip
    for i in range(len(x) - 1):
        if gains[i] > 1 >= gains[i + 1]:
            share = (gains[i] - 1) / (gains[i] - gains[i + 1])
            value = x[i] * (x[i + 1] / x[i]) ** share
            crossing = {
                "value": value, "ci_low": value * 0.93, "ci_high": value * 1.08, "model_band_low": value * 0.8,
                "model_band_high": value * 1.25, "direction": "gain_to_loss", "bracket": [x[i], x[i + 1]], "n_pairs": 5,
            }  # fmt: skip
            return base | {"status": "crosses", "crossings": [crossing]}
    return base | {"status": "always" if gains[0] > 1 else "never"}


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else ["cell_id"])
        writer.writeheader()
        writer.writerows(rows)
