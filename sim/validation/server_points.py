"""Whole servers at fixed concurrency, simulated: time per output token and to the first token against public dumps.

Each setting of `e2e_tpot.csv` is a closed loop of equal requests through the server, measured in its steady window.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from sim.errors import ScenarioError, SimError
from sim.hardware.catalogue import find_gpu
from sim.scenario.load import load_mapping
from sim.validation.harness.base import ArmTimes
from sim.validation.harness.load import loaded
from sim.validation.host_fit import Setting
from sim.validation.scores import Score
from sim.validation.servers import ENGINES, SERVER_FILE, Measured, Server, kv_dtype, read_settings, served_model, weight_dtype

#: Requests per user: one wave before the window, one after it.
_ROUNDS = 4


class PointNotRun(NamedTuple):
    """A setting that is not simulated, and why."""

    name: str
    reason: str


class Points(NamedTuple):
    """Scores of dense models and of mixtures of experts, `TPOT` and `TTFT`, and what was not run."""

    dense: tuple[Score, ...]
    experts: tuple[Score, ...]
    not_run: tuple[PointNotRun, ...]


def run_points(folder: Path) -> Points:
    """Every setting of the table in `folder`/gpu_timings or `folder`; empty without one.

    Raises:
        CalibrationError: the table is malformed.
    """
    path = next((p for p in (folder / "gpu_timings" / SERVER_FILE, folder / SERVER_FILE) if p.is_file()), None)
    dense: list[Score] = []
    experts: list[Score] = []
    not_run: list[PointNotRun] = []
    for server, settings in sorted(read_settings(path).items()) if path else ():
        for setting, measured in sorted(settings.items()):
            try:
                scores = list(_scores(server, setting, measured))
                (experts if served_model(server.model).experts else dense).extend(scores)
            except SimError as error:
                not_run.append(PointNotRun(f"{_group(server)}, {_name(setting)}", str(error).splitlines()[0]))
    return Points(tuple(dense), tuple(experts), tuple(not_run))


def _group(server: Server) -> str:
    return f"{server.model}, {server.gpu}, {server.backend}, {server.precision or 'bf16'}"


def _name(setting: Setting) -> str:
    spread = ", expert parallel" if setting.expert_parallel else ""
    return f"{setting.isl}/{setting.osl}, TP{setting.tp}{spread}"


def _scores(server: Server, setting: Setting, measured: list[Measured]) -> Iterator[Score]:
    """Medians over repeated settings.

    Raises:
        SimError: the server cannot be simulated.
    """
    ours, naive = (_run(server, setting, naive=naive) for naive in (False, True))
    known = {
        "TPOT": (median(one.tpot_ms for one in measured), ours.tpot_ms, naive.tpot_ms),
        "TTFT": (median(one.ttft_ms for one in measured), ours.ttft_ms, naive.ttft_ms),
    }
    for quantity, (found, predicted, peak) in known.items():
        if math.isfinite(found) and found > 0:
            name, load = _name(setting), str(setting.concurrency)
            yield Score(name, _group(server), quantity, load, predicted, found, naive=peak)


def _run(server: Server, setting: Setting, *, naive: bool) -> ArmTimes:
    return loaded(load_mapping(_scenario(server, setting, naive=naive)).scenario, "plain", None)


def _scenario(server: Server, setting: Setting, *, naive: bool) -> Mapping[str, Any]:
    if server.backend not in ENGINES:
        raise ScenarioError(f"backend {server.backend!r} has no engine profile")
    if not setting.tp:
        raise ScenarioError("attention data parallelism, or experts both sliced and spread: not simulated")
    gpu, model = find_gpu(server.gpu), served_model(server.model)
    cost = {"kind": "naive"} if naive else {"kind": "roofline", "engine": ENGINES[server.backend]}
    return {
        "hardware": gpu.name,
        "model": {
            "target": model.name,
            "weight_dtype": weight_dtype(server, model),
            "kv_cache_dtype": kv_dtype(server, gpu),
        },
        "engine": {
            "tensor_parallel_size": setting.tp,
            "enable_expert_parallel": setting.expert_parallel,
            "max_num_batched_tokens": 8192,
            "max_num_seqs": setting.concurrency,
            "enable_prefix_caching": False,
        },
        "cost_model": cost,
        "arms": {"plain": {}},
        "workload": {
            "arrivals": {"kind": "closed", "max_concurrency": setting.concurrency},
            "prompt_tokens": {"kind": "fixed", "value": setting.isl},
            "output_tokens": {"kind": "fixed", "value": setting.osl},
            "num_requests": _ROUNDS * setting.concurrency,
        },
    }
