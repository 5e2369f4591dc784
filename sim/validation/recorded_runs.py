"""Recorded runs of a real server, replayed with their own limits: latencies, and the engine's state by the second.

A run is three files: `NAME_requests.csv` (when each request was queued, first and last token, lengths),
`NAME_engine.json` (limits, GPU, model), and, where it was recorded, `NAME_seconds.csv` (running, waiting, KV use).
Requests are replayed at the times they were queued, with the blocks that the engine found. Nothing is fitted to them.
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
from sim.text_file import read_text, refuse
from sim.validation import as_published
from sim.validation.scores import Score
from sim.validation.shipped import peer_error

Floats = NDArray[np.float64]

_REQUESTS = ("queued_s", "first_token_s", "last_token_s", "input_tokens", "output_tokens")
_SECONDS = ("t", "running", "waiting", "kv_cache_pct")
_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "tensor_parallel_size", "enable_expert_parallel")
_CACHE = ("block_size", "gpu_memory_utilization")
_ONE_SERVER = ("data_parallel_size", "pipeline_parallel_size")
_STATISTICS: dict[str, Callable[[Floats], float]] = {
    "mean": lambda values: float(values.mean()),
    "P99": lambda values: float(np.percentile(values, 99)),
}


class Series(NamedTuple):
    """A state over time: root mean square of the difference, in per cent of the range that was recorded.

    Attributes:
        what: running, waiting or KV use.
        span: the range.
        seconds, measured, simulated: (N,) when it was recorded, and both states.
    """

    name: str
    what: str
    rms: float
    naive_rms: float
    span: float
    seconds: Floats
    measured: Floats
    simulated: Floats


class RecordedRun(NamedTuple):
    """One run: GPU, latencies, series (none where they were not recorded), and how often requests were preempted."""

    name: str
    gpu: str
    scores: tuple[Score, ...]
    series: tuple[Series, ...]
    preemptions: int


def recorded_runs(folder: Path) -> tuple[list[RecordedRun], list[tuple[str, str]]]:
    """Replay every run in `folder`/recorded_vllm or `folder`; also those that cannot be, with the reason.

    Raises:
        SimError: the files of a run are malformed; file, line and column.
    """
    there = folder / "recorded_vllm"
    found, not_run = [], []
    for path in sorted((there if there.is_dir() else folder).glob("*_requests.csv")):
        recording = read_recorded(path)
        try:
            found.append(_run(recording))
        except SimError as error:
            not_run.append((recording.name, str(error).splitlines()[0]))
    return found, not_run


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
    seconds = path.with_name(f"{name}_seconds.csv")
    series = (
        read_table(seconds, _SECONDS[:3], counts=_SECONDS[:3], optional=_SECONDS[3:]) if seconds.is_file() else None
    )
    return Recorded(name, requests, engine, series)


def _run(recorded: Recorded) -> RecordedRun:
    """One run.

    Raises:
        SimError: GPU or model unknown, or limits that cannot be simulated.
    """
    name, requests, engine, seconds = recorded
    ours, naive = (_replay(requests, engine, naive=x) for x in (False, True))
    series = () if seconds is None else _series(name, seconds, ours, naive)
    preemptions = int(ours.requests.num_preemptions.sum())
    gpu = as_published.gpu(str(engine["gpu"]))
    return RecordedRun(name, gpu, tuple(_latencies(name, requests, ours, naive)), tuple(series), preemptions)


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


def _scenario(engine: Mapping[str, Any], trace: Path, *, naive: bool) -> dict[str, Any]:
    cache, target = engine.get("kv_cache") or {}, as_published.target(str(engine["model"]))
    profile = as_published.engine(f"vllm {engine.get('vllm_version', '')}")
    for name in _ONE_SERVER:
        if engine.get(name) not in (None, 1):
            raise ScenarioError(f"{name} = {engine[name]}: a recorded run is of one engine")
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
            "kv_cache_dtype": engine.get("kv_cache_dtype") or "auto",
        },
        "engine": {**limits, **cached, "num_gpu_blocks_override": cache.get("num_gpu_blocks")},
        "cost_model": {"kind": "naive"} if naive else {"kind": "roofline", "engine": profile},
        "arms": {"plain": {}},
        "workload": {"trace": str(trace), "arrivals": {"kind": "trace"}},
    }


def _latencies(name: str, requests: Table, ours: RunRecord, naive: RunRecord) -> Iterator[Score]:
    """Means and 99th percentiles in milliseconds, by the definitions of vLLM."""
    arrival, first, last = (requests.numbers(column) for column in ("queued_s", "first_token_s", "last_token_s"))
    measured = _milliseconds(arrival, first, last, requests.numbers("output_tokens"))
    simulated, peaks = (_of_record(record) for record in (ours, naive))
    for what, values in ((what, values) for what, values in measured.items() if values.size):
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


def _series(name: str, seconds: Table, ours: RunRecord, naive: RunRecord) -> Iterator[Series]:
    """States at each recorded second; one that never moves was not recorded."""
    at = seconds.numbers("t")
    for what, column in (("running", "running"), ("waiting", "waiting"), ("KV use", "kv_cache_pct")):
        measured = seconds.optional_numbers(column)
        span = float(np.ptp(measured))  # NaN where a second is missing
        if span > 0:
            simulated, peaks = (_state_at(record, what, at) for record in (ours, naive))
            rms, naive_rms = (
                100 * float(np.sqrt(np.mean((state - measured) ** 2))) / span for state in (simulated, peaks)
            )
            yield Series(name, what, rms, naive_rms, span, at, measured, simulated)


def _state_at(record: RunRecord, what: str, seconds: Floats) -> Floats:
    """The state of the step that runs at each time; 0 after the last one. KV use in per cent."""
    steps = record.steps
    values = {
        "running": steps.running.astype(np.float64),
        "waiting": steps.waiting.astype(np.float64),
        "KV use": 100.0 * steps.kv_blocks_used / record.num_kv_blocks,
    }[what]
    at = np.searchsorted(steps.start_ns, seconds * 1e9, side="right") - 1
    over = seconds * 1e9 > int(steps.start_ns[-1] + steps.duration_ns[-1])
    found: Floats = np.where((at < 0) | over, 0.0, values[np.maximum(at, 0)])
    return found
