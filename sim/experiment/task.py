"""One run of one arm in one cell: the unit of parallel work. Everything here happens inside a worker."""

import json
import shlex
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sim.deployment import Deployment
from sim.errors import InvariantError, SimError
from sim.experiment.files import StorageError, json_bytes, parquet_bytes
from sim.metrics.details import acceptance_details, itl_histogram, mean_decode_context, step_time_s
from sim.metrics.record import Status
from sim.metrics.series import request_columns, timeline_columns
from sim.metrics.slo import Slo
from sim.metrics.statistics import MIN_REQUESTS_FOR_P99
from sim.metrics.summary import Measure, Measured, Row, measure_run, null_reason, summary_row
from sim.metrics.usage import extrapolated_shares
from sim.metrics.window import Loop
from sim.scenario.build import set_up, simulate_arm
from sim.scenario.schema import Scenario


@dataclass(frozen=True, slots=True)
class Task:
    """What one run needs; plain data, so that it can be sent to another process.

    Attributes:
        scenario_json: the cell's scenario, with nothing left to vary.
        cell_id: which cell.
        vary: the varied fields of the cell.
        arm, replicate: which run.
        base_dir: where relative file names of the scenario start.
        keep_files: report the run's files back as well as its row.
    """

    scenario_json: str
    cell_id: str
    vary: dict[str, Any]
    arm: str
    replicate: int
    base_dir: str
    keep_files: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run reports back.

    Attributes:
        row: its summary row; None when it failed.
        error: why it failed, "" when it did not.
        exit_code: what the error would end a process with; 0 without one.
        context_tokens: mean context of a decoding request.
        extrapolated: share of its steps outside of what the cost model was given.
        wall_s: how long it took.
        files: name -> content of the run's files.
    """

    row: Row | None
    error: str = ""
    exit_code: int = 0
    context_tokens: float = 0.0
    extrapolated: float = 0.0
    wall_s: float = 0.0
    files: Mapping[str, bytes] = field(default_factory=dict)


def run_cell_arm(task: Task) -> Outcome:
    """Simulate one run.

    Failures are reported, not raised, so that other runs go on.
    """
    return guarded(_run, task)


def guarded(run: Callable[[Task], Outcome], task: Task) -> Outcome:
    """What `run` reports, or why it failed."""
    start = time.perf_counter()
    try:
        return replace(run(task), wall_s=time.perf_counter() - start)
    except InvariantError as error:
        return Outcome(None, f"{traceback.format_exc(limit=-8)}replay: {_replay(task)}\n{error}", error.exit_code)
    except SimError as error:
        return Outcome(None, str(error), error.exit_code)
    except MemoryError:
        return Outcome(None, "out of memory", StorageError.exit_code)
    except Exception:
        return Outcome(None, traceback.format_exc(limit=-8), 1)


def _replay(task: Task) -> str:
    """The command that runs this run again, whatever else the scenario varies."""
    words = ["specsim", "run", "SCENARIO", "--seed", str(Scenario.model_validate_json(task.scenario_json).seed)]
    words += ["--arms", task.arm, "--replicates", str(task.replicate + 1)]
    for key, value in task.vary.items():
        words += ["--set", f"sweep.vary.{key}={json.dumps([value])}"]
    return shlex.join(words)


def _run(task: Task) -> Outcome:
    scenario = Scenario.model_validate_json(task.scenario_json)
    base_dir = Path(task.base_dir)
    setup = set_up(scenario, task.arm, base_dir)
    record = simulate_arm(scenario, setup, task.replicate, base_dir)
    run = measure_run(record, measure_of(scenario))
    row = {**_identity(task, scenario), **summary_row(run)}
    outside, _ = extrapolated_shares(record.steps, run.steps)
    files = _files(task, scenario, run, row, setup.deployment) if task.keep_files else {}
    return Outcome(row, context_tokens=mean_decode_context(run), extrapolated=outside, files=files)


def _files(task: Task, scenario: Scenario, run: Measured, row: Row, deployment: Deployment) -> dict[str, bytes]:
    names = tuple(traffic.name for traffic in scenario.workload.classes) or ("default",)
    return {
        "requests.parquet": parquet_bytes(request_columns(run, names)),
        "timeline.parquet": parquet_bytes(timeline_columns(run.record)),
        "result.json": json_bytes(_result(run, row, deployment), indent=None),
    }


def measure_of(scenario: Scenario) -> Measure:
    """What the metrics have to know about a cell."""
    slo, workload = scenario.slo, scenario.workload
    return Measure(
        loop=Loop(
            getattr(workload.arrivals, "max_concurrency", None),
            workload.warmup_requests,
            workload.cooldown_requests,
            saturates=getattr(workload.arrivals, "max_concurrent_sessions", None) is None,
        ),
        slo=Slo() if slo is None else Slo(slo.ttft, slo.tpot, slo.e2el, slo.percentile),
        num_gpus=num_gpus(scenario),
        usd_per_gpu_hour=scenario.hardware.cost_per_gpu_hour_usd,
    )


def num_gpus(scenario: Scenario) -> int:
    """GPUs of all replicas."""
    return scenario.engine.tensor_parallel_size * scenario.replicas


def _identity(task: Task, scenario: Scenario) -> Row:
    """The first columns of the summary: which run this is and what load it had."""
    arrivals, arm = scenario.workload.arrivals, scenario.arms[task.arm]
    return {
        "experiment": scenario.name,
        "cell_id": task.cell_id,
        "arm": task.arm,
        "is_baseline": task.arm == scenario.baseline,
        "replicate": task.replicate,
        "seed": scenario.seed,
        "verification": arm.rule.kind if arm.speculates else None,
        "lossless": arm.lossless,
        **{f"vary.{key}": value for key, value in task.vary.items()},
        "max_concurrency": getattr(arrivals, "max_concurrency", None),
        "request_rate": getattr(arrivals, "request_rate", None),
        "burstiness": getattr(arrivals, "burstiness", None),
        "replicas": scenario.replicas,
        "num_gpus": num_gpus(scenario),
    }


def _result(run: Measured, row: Row, deployment: Deployment) -> dict[str, object]:
    memory = asdict(deployment.memory)
    memory |= {
        "num_kv_blocks": run.record.num_kv_blocks // run.record.num_replicas,
        "block_size": run.record.block_size,
    }
    empty = [key for key, value in row.items() if value is None]
    outside, of_time = extrapolated_shares(run.record.steps, run.steps)
    inapplicable = ("max_concurrency", "request_rate", "burstiness", "verification")
    return {
        "schema_version": 1,
        "summary": row,
        "null_reasons": {key: null_reason(key) for key in empty if key not in inapplicable},
        "acceptance": acceptance_details(run),
        "step_time_s": step_time_s(run),
        "itl_histogram": itl_histogram(run),
        "mean_decode_context_tokens": mean_decode_context(run),
        "extrapolated": {"steps": outside, "target_time": of_time},
        "memory": memory,
        "notes": run_notes(run, row),
    }


def _ended_sessions(run: Measured) -> str:
    rows = run.record.requests
    ended = len(np.unique(rows.session_row[rows.status == Status.UNSENT])) if rows.session_row is not None else 0
    unsent = int((rows.status == Status.UNSENT).sum())
    return f"{ended} sessions ended early, their next prompt being too long: {unsent} later turns were never sent"


#: What happened to steps that the cost model had not been given.
OUTSIDE = "lay outside of the measured step times and were priced by the fallback model"


def run_notes(run: Measured, row: Row) -> list[str]:
    """What a reader of the numbers has to know."""
    notes = []
    if not run.window.steady:
        notes.append("too few requests for a steady window: the whole run is measured, start and drain included")
    if row["saturated"]:
        notes.append("saturated: the queue still grew at the end, so latencies depend on the length of the run")
    if row["failed"]:
        notes.append(f"{row['failed']} requests were rejected or never finished")
    if row["unsent"]:
        notes.append(_ended_sessions(run))
    if row["preemptions"]:
        notes.append(f"{row['preemptions']} preemptions: the KV pool was exhausted")
    outside, of_time = extrapolated_shares(run.record.steps, run.steps)
    if outside:
        notes.append(f"{outside:.1%} of the steps ({of_time:.1%} of the target's time) {OUTSIDE}")
    measured = int(run.window.measured.sum())
    if measured < MIN_REQUESTS_FOR_P99:
        notes.append(f"p99 of {measured} requests: fewer than {MIN_REQUESTS_FOR_P99}")
    return notes
