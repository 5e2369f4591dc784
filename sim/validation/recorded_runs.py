"""Recorded runs of a real server, replayed with their own limits: latencies, and the engine's state by the second.

A run is three files: `NAME_requests.csv` (when each request was queued, first and last token, lengths),
`NAME_engine.json` (limits, GPU, model), and, where it was recorded, `NAME_seconds.csv` (running, waiting, KV use).
Requests are replayed at the times they were queued, with the blocks that the engine found and, where its version has it
by default, overlapped scheduling. Nothing is fitted to them.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.tables import Table, read_table
from sim.errors import ScenarioError, SimError
from sim.experiment.analytic import decode_step
from sim.metrics.record import RunRecord, Status
from sim.scenario.build import resolved, set_up, simulate
from sim.scenario.load import load_mapping
from sim.text_file import read_text, refuse
from sim.validation import as_published
from sim.validation.recorded_series import Clock, Series, compare_series, find_clock, read_states
from sim.validation.scores import Score
from sim.validation.shipped import peer_error

Floats = NDArray[np.float64]

_REQUESTS = ("queued_s", "first_token_s", "last_token_s", "input_tokens", "output_tokens")
_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "tensor_parallel_size", "enable_expert_parallel")
_CACHE = ("block_size", "gpu_memory_utilization")
_KV_DTYPES = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bfloat16": "bf16", "float16": "fp16"}
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
    """Replay every run in `folder`/recorded_vllm or `folder`; also those that cannot be, with the reason.

    Raises:
        SimError: the files of a run are malformed; file, line and column.
    """
    found, not_run = [], []
    for recording in read_recordings(folder):
        try:
            found.append(_run(recording))
        except SimError as error:
            not_run.append((recording.name, str(error).splitlines()[0]))
    return found, not_run


def read_recordings(folder: Path) -> Iterator["Recorded"]:
    """Every run in `folder`/recorded_vllm or `folder`.

    Raises:
        SimError: the files of a run are malformed; file, line and column.
    """
    there = folder / "recorded_vllm"
    for path in sorted((there if there.is_dir() else folder).glob("*_requests.csv")):
        yield read_recorded(path)


class Recorded(NamedTuple):
    """The files of one run; `seconds` is None where the series was not recorded."""

    name: str
    requests: Table
    engine: Mapping[str, Any]
    seconds: Table | None


def read_recorded(path: Path) -> Recorded:
    """The run whose requests are at `path`.

    Raises:
        SimError: a file is missing or malformed; file, line and column.
    """
    name = path.name.removesuffix("_requests.csv")
    requests = read_table(path, _REQUESTS, _REQUESTS[3:], _REQUESTS[:3])
    engine = _engine(path.with_name(f"{name}_engine.json"))
    states = path.with_name(f"{name}_seconds.csv")
    return Recorded(name, requests, engine, read_states(states) if states.is_file() else None)


def _run(recorded: Recorded) -> RecordedRun:
    """One run.

    Raises:
        SimError: GPU or model unknown, or limits that cannot be simulated.
    """
    name, requests, engine, seconds = recorded
    gpu = as_published.gpu(str(engine["gpu"]))
    ours, naive = (_replay(requests, engine, naive=x) for x in (False, True))
    sigma = _step_error(requests, engine)
    band = tuple(_replay(requests, engine, naive=False, target_time=1 + x) for x in (-sigma, sigma))
    scores = tuple(_latencies(name, requests, ours, naive, band))
    preemptions = int(ours.requests.num_preemptions.sum())
    if seconds is None:
        return RecordedRun(name, gpu, scores, (), None, preemptions)
    clock = find_clock(seconds, requests)
    series = compare_series(name, seconds, clock, ours, naive, overlaps=_overlaps(engine))
    return RecordedRun(name, gpu, scores, tuple(series), clock, preemptions)


def _engine(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(read_text(path)[0])
    except json.JSONDecodeError as error:
        raise refuse(path, f"not JSON, column {error.colno}: {error.msg}", error.lineno) from None
    if not isinstance(found, dict) or not {"gpu", "model", "max_num_seqs"} <= found.keys():
        raise refuse(path, "expected an object with gpu, model and max_num_seqs")
    if not isinstance(found.get("kv_cache") or {}, dict):
        raise refuse(path, "kv_cache: expected an object")
    return found


def _replay(requests: Table, engine: Mapping[str, Any], *, naive: bool, target_time: float = 1.0) -> RunRecord:
    """The same requests through the simulated server, with all passes `target_time` times as long."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.csv"
        trace.write_text(trace_text(requests), encoding="utf-8")
        data = recorded_scenario(engine, trace, naive=naive) | {"what_if": {"target_time": target_time}}
        scenario = load_mapping(data, Path(folder)).scenario
        record = simulate(scenario, "plain", 0, Path(folder))
    if not bool((record.requests.status == Status.FINISHED).all()):
        raise ScenarioError("requests were rejected: they do not fit the simulated server")
    return record


def _step_error(requests: Table, engine: Mapping[str, Any]) -> float:
    """One sigma of a decode step with all seats taken, in the middle of a mean request."""
    data = recorded_scenario(engine, Path("trace.csv"), naive=False) | {"workload": {"num_requests": 1}}
    setup = set_up(load_mapping(data).scenario, "plain", Path())
    prompt, output = (float(requests.numbers(name).mean()) for name in ("input_tokens", "output_tokens"))
    step = decode_step(setup, resolved(setup.engine.max_num_seqs), round(prompt + output / 2))
    return step.error(setup.cost.relative_error)


def trace_text(requests: Table) -> str:
    """The requests as a trace that scenarios read, in the order they were queued."""
    order = np.argsort(requests.numbers("queued_s"), kind="stable")
    columns = [requests.numbers(name)[order] for name in ("queued_s", "input_tokens", "output_tokens")]
    lines = [f"{arrival:.6f},{prompt:.0f},{output:.0f}" for arrival, prompt, output in zip(*columns, strict=True)]
    return "\n".join(["arrival_s,input_tokens,output_tokens", *lines]) + "\n"


def _overlaps(engine: Mapping[str, Any]) -> bool:
    """Whether the next step is scheduled while one runs: as stated, else as the version does by default."""
    stated = engine.get("async_scheduling")
    return as_published.overlaps(_server(engine)) if stated is None else bool(stated)


def _server(engine: Mapping[str, Any]) -> str:
    return f"vllm {engine.get('vllm_version', '')}"


def recorded_scenario(engine: Mapping[str, Any], trace: Path, *, naive: bool) -> dict[str, Any]:
    """The server of a recorded run, and its requests, as plain data: what one would write in YAML.

    Args:
        engine: what `NAME_engine.json` states.
        trace: where `trace_text` was written.
        naive: with datasheet peaks.

    Raises:
        SimError: GPU or model unknown, or limits that cannot be simulated.
    """
    cache, target = engine.get("kv_cache") or {}, as_published.target(str(engine["model"]))
    profile = as_published.engine(_server(engine))
    limits = {name: engine[name] for name in _LIMITS if engine.get(name) is not None}
    limits |= {name: cache[name] for name in _CACHE if cache.get(name) is not None}
    cached = (
        {} if cache.get("enable_prefix_caching") is None else {"enable_prefix_caching": cache["enable_prefix_caching"]}
    )
    return {
        "hardware": as_published.gpu(str(engine["gpu"])),
        "model": {
            "target": target.model,
            "weight_dtype": target.weight_dtype,
            "kv_cache_dtype": _KV_DTYPES.get(str(engine.get("kv_cache_dtype")), engine.get("kv_cache_dtype") or "auto"),
        },
        "engine": {**limits, **cached, **_blocks(cache), "async_scheduling": _overlaps(engine)},
        "cost_model": {"kind": "naive"} if naive else {"kind": "roofline", "engine": profile},
        "arms": {"plain": {}},
        **_replicas(engine),
        "workload": {"trace": str(trace), "arrivals": {"kind": "trace"}},
    }


def _replicas(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Data-parallel engines: replicas behind vLLM's own score.

    Raises:
        UnrunnableError: their experts are spread over all of them, so that no engine steps alone; or stages of a
            pipeline.
    """
    count = as_published.num_gpus(str(engine.get("data_parallel_size") or 1), "")
    if engine.get("pipeline_parallel_size") not in (None, 1):
        raise as_published.UnrunnableError("pipeline parallelism is not simulated")
    if count > 1 and engine.get("enable_expert_parallel"):
        raise as_published.UnrunnableError(f"experts spread over {count} data-parallel engines are not simulated")
    return {"replicas": count, "router": {"kind": "shortest_queue"}} if count > 1 else {}


def _blocks(cache: Mapping[str, Any]) -> dict[str, int]:
    """Blocks that requests can hold: vLLM's pool keeps one back as the null block (`v1/core/block_pool.py`)."""
    found = cache.get("num_gpu_blocks")
    return {} if found is None else {"num_gpu_blocks_override": int(found) - 1}


def _latencies(
    name: str, requests: Table, ours: RunRecord, naive: RunRecord, band: Sequence[RunRecord]
) -> Iterator[Score]:
    """Means and 99th percentiles in milliseconds, by vLLM's definitions; `band`: runs with steps a sigma off."""
    arrival, first, last = (requests.numbers(column) for column in ("queued_s", "first_token_s", "last_token_s"))
    measured = _milliseconds(arrival, first, last, requests.numbers("output_tokens"))
    simulated, peaks, *off = (_of_record(record) for record in (ours, naive, *band))
    for what, values in ((what, values) for what, values in measured.items() if values.size):
        for statistic, of in _STATISTICS.items():
            peer = peer_error(f"{name} {statistic} {what}")
            found, ends = of(values), [of(one[what]) for one in off]
            yield Score(
                name=name, group=name, quantity=f"{statistic} {what}", load="", predicted=of(simulated[what]),
                measured=found, low=min(ends), high=max(ends),
                naive=of(peaks[what]), peer=peer and found * (1 + peer.percent / 100),
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
