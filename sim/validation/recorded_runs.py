"""Recorded runs of a real server, replayed with their own limits: latencies, and the engine's state by the second.

A run is three files: `NAME_requests.csv` (when each request was queued, first and last token, lengths),
`NAME_engine.json` (limits, GPU, model), and, where it was recorded, `NAME_seconds.csv` (running, waiting, KV use).
Requests are replayed at the times they were queued, with the blocks that the engine found and, where its version has it
by default, overlapped scheduling. Nothing is fitted to them.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.tables import Table, read_table
from sim.errors import ScenarioError, SimError
from sim.metrics.record import RunRecord, Status
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping
from sim.validation import as_published
from sim.validation.recorded_series import SECONDS, Clock, Series, compare_series, find_clock
from sim.validation.scores import Score
from sim.validation.shipped import peer_error

Floats = NDArray[np.float64]

_REQUESTS = ("queued_s", "first_token_s", "last_token_s", "input_tokens", "output_tokens")
_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "tensor_parallel_size", "enable_expert_parallel")
_STATISTICS: dict[str, Callable[[Floats], float]] = {
    "mean": lambda values: float(values.mean()),
    "P99": lambda values: float(np.percentile(values, 99)),
}


class RecordedRun(NamedTuple):
    """One run: GPU, latencies, series and their clock (none where not recorded), how often requests were preempted."""

    name: str
    gpu: str
    scores: tuple[Score, ...]
    series: tuple[Series, ...]
    clock: Clock | None
    preemptions: int


def recorded_runs(folder: Path) -> tuple[list[RecordedRun], list[tuple[str, str]]]:
    """Replay every run in `folder`/recorded_vllm or `folder`; also those that cannot be, with the reason."""
    there = folder / "recorded_vllm"
    found, not_run = [], []
    for path in sorted((there if there.is_dir() else folder).glob("*_requests.csv")):
        name = path.name.removesuffix("_requests.csv")
        try:
            found.append(_run(path, name))
        except SimError as error:
            not_run.append((name, str(error).splitlines()[0]))
    return found, not_run


def _run(path: Path, name: str) -> RecordedRun:
    """One run.

    Raises:
        SimError: its files are malformed, or name a GPU or model that is unknown.
    """
    requests = read_table(path, _REQUESTS)
    engine = _engine(path.with_name(f"{name}_engine.json"))
    ours, naive = (_replay(requests, engine, naive=x) for x in (False, True))
    gpu, states = as_published.gpu(str(engine["gpu"])), path.with_name(f"{name}_seconds.csv")
    scores, preemptions = tuple(_latencies(name, requests, ours, naive)), int(ours.requests.num_preemptions.sum())
    if not states.is_file():
        return RecordedRun(name, gpu, scores, (), None, preemptions)
    seconds = read_table(states, SECONDS)
    clock = find_clock(seconds, requests)
    series = compare_series(name, seconds, clock, ours, naive, overlaps=_overlaps(engine))
    return RecordedRun(name, gpu, scores, tuple(series), clock, preemptions)


def _engine(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path.name}: {error}") from None
    if not isinstance(found, dict) or not {"gpu", "model", "max_num_seqs"} <= found.keys():
        raise ScenarioError(f"{path.name}: expected gpu, model and max_num_seqs")
    return found


def _replay(requests: Table, engine: Mapping[str, Any], *, naive: bool) -> RunRecord:
    """The same requests through the simulated server."""
    order = np.argsort(requests.numbers("queued_s"), kind="stable")
    columns = [requests.numbers(name)[order] for name in ("queued_s", "input_tokens", "output_tokens")]
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{arrival:.6f},{prompt:.0f},{output:.0f}" for arrival, prompt, output in zip(*columns, strict=True)]
        trace = Path(folder) / "trace.csv"
        trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *lines]) + "\n", encoding="utf-8")
        scenario = load_mapping(_scenario(engine, trace, naive=naive), Path(folder)).scenario
        record = simulate(scenario, "plain", 0, Path(folder))
    if not bool((record.requests.status == Status.FINISHED).all()):
        raise ScenarioError("requests were rejected: they do not fit the simulated server")
    return record


def _overlaps(engine: Mapping[str, Any]) -> bool:
    """Whether the next step is scheduled while one runs: as stated, else as the version does by default."""
    stated = engine.get("async_scheduling")
    return as_published.overlaps(_server(engine)) if stated is None else bool(stated)


def _server(engine: Mapping[str, Any]) -> str:
    return f"vllm {engine.get('vllm_version', '')}"


def _scenario(engine: Mapping[str, Any], trace: Path, *, naive: bool) -> dict[str, Any]:
    cache = engine.get("kv_cache") or {}
    profile = as_published.engine(_server(engine))
    limits = {name: engine[name] for name in _LIMITS if engine.get(name) is not None}
    cached = (
        {} if cache.get("enable_prefix_caching") is None else {"enable_prefix_caching": cache["enable_prefix_caching"]}
    )
    return {
        "hardware": as_published.gpu(str(engine["gpu"])),
        "model": as_published.target(str(engine["model"])).model,
        "engine": {**limits, **cached, **_blocks(cache), "async_scheduling": _overlaps(engine)},
        "cost_model": {"kind": "naive"} if naive else {"kind": "roofline", "engine": profile},
        "arms": {"plain": {}},
        **_replicas(engine),
        "workload": {"trace": str(trace), "arrivals": {"kind": "trace"}},
    }


def _replicas(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Data-parallel engines: replicas behind vLLM's own score.

    Raises:
        UnrunnableError: their experts are spread over all of them, so that no engine steps alone.
    """
    count = int(engine.get("data_parallel_size") or 1)
    if count > 1 and engine.get("enable_expert_parallel"):
        raise as_published.UnrunnableError(f"experts spread over {count} data-parallel engines are not simulated")
    return {"replicas": count, "router": {"kind": "shortest_queue"}} if count > 1 else {}


def _blocks(cache: Mapping[str, Any]) -> dict[str, int]:
    """Blocks that requests can hold: vLLM's pool keeps one back as the null block (`v1/core/block_pool.py`)."""
    found = cache.get("num_gpu_blocks")
    return {} if found is None else {"num_gpu_blocks_override": int(found) - 1}


def _latencies(name: str, requests: Table, ours: RunRecord, naive: RunRecord) -> Iterator[Score]:
    """Means and 99th percentiles in milliseconds, by the definitions of vLLM."""
    arrival, first, last = (requests.numbers(column) for column in ("queued_s", "first_token_s", "last_token_s"))
    measured = _milliseconds(arrival, first, last, requests.numbers("output_tokens"))
    simulated, peaks = (_of_record(record) for record in (ours, naive))
    for what, values in measured.items():
        for statistic, of in _STATISTICS.items():
            peer = peer_error(f"{name} {statistic} {what}")
            found = of(values)
            yield Score(
                name=name, group=name, quantity=f"{statistic} {what}", load="", predicted=of(simulated[what]),
                measured=found, naive=of(peaks[what]), peer=peer and found * (1 + peer.percent / 100),
            )  # fmt: skip


def _of_record(record: RunRecord) -> dict[str, Floats]:
    rows = record.requests
    arrival, first, last = (
        np.asarray(1e-9 * column, np.float64) for column in (rows.arrival_ns, rows.first_token_ns, rows.finish_ns)
    )
    return _milliseconds(arrival, first, last, rows.output_tokens.astype(np.float64))


def _milliseconds(arrival: Floats, first: Floats, last: Floats, output: Floats) -> dict[str, Floats]:
    several = output > 1
    return {
        "TTFT": 1e3 * (first - arrival),
        "TPOT": 1e3 * (last - first)[several] / (output[several] - 1),
        "E2E": 1e3 * (last - arrival),
    }
