"""Whole servers at fixed concurrency, simulated: time per output token and to the first token against public dumps.

Each setting of `e2e_tpot.csv` is a closed loop through the server, set up (`harness/recipes.py`) and driven
(`harness/waves.py`) as InferenceMAX does, whose lengths most of the dumps have, the others as aiconfigurator does, and
measured where clients do (`harness/clients.py`). Datasheet peaks are those of the closed form.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from sim.cost.passes import prefill_pass
from sim.errors import ScenarioError, SimError
from sim.experiment.analytic import decode_step, price_step
from sim.hardware.catalogue import find_gpu
from sim.scenario.build import ArmSetup, set_up
from sim.scenario.load import load_mapping
from sim.speculation.base import DraftWork
from sim.validation.harness.recipes import Served, cost_arguments, engine_arguments
from sim.validation.harness.waves import run_waves, wave_workload
from sim.validation.host_fit import Setting
from sim.validation.scores import Score
from sim.validation.servers import (
    ENGINES,
    SERVER_FILE,
    Measured,
    Server,
    kv_dtype,
    predict,
    read_settings,
    served_model,
    weight_dtype,
)


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
    dense: list[Score] = []
    experts: list[Score] = []
    not_run: list[PointNotRun] = []
    for server, setting, measured in _settings(folder):
        try:
            scores = list(_scores(server, setting, measured))
            (experts if served_model(server.model).experts else dense).extend(scores)
        except SimError as error:
            not_run.append(PointNotRun(f"{_group(server)}, {_name(setting)}", str(error).splitlines()[0]))
    return Points(tuple(dense), tuple(experts), tuple(not_run))


def point_scenarios(folder: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Name, what was measured, and the scenario of every setting that can be simulated; nothing is run.

    Raises:
        CalibrationError: the table is malformed.
    """
    for server, setting, measured in _settings(folder):
        try:
            scenario = _scenario(server, setting)
        except SimError:
            continue  # its reason stands on the suite's page
        tpot, ttft = (median(getattr(one, name) for one in measured) for name in ("tpot_ms", "ttft_ms"))
        name = f"{_group(server)}, {_name(setting)}, {setting.concurrency}"
        yield name, f"measured by clients, ms: mean TPOT {tpot:.4g}, mean TTFT {ttft:.4g}", scenario


def _settings(folder: Path) -> Iterator[tuple[Server, Setting, list[Measured]]]:
    path = next((p for p in (folder / "gpu_timings" / SERVER_FILE, folder / SERVER_FILE) if p.is_file()), None)
    for server, settings in sorted(read_settings(path).items()) if path else ():
        for setting, measured in sorted(settings.items()):
            yield server, setting, measured


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
    scenario = _scenario(server, setting)
    closed = predict(server, setting)
    loaded = load_mapping(scenario).scenario
    ours, (step, prompt) = run_waves(loaded, "plain"), _sigmas(set_up(loaded, "plain", Path()), setting)
    known = {
        "TPOT": (median(one.tpot_ms for one in measured), ours.tpot_ms, step, closed.naive),
        "TTFT": (median(one.ttft_ms for one in measured), ours.ttft_ms, prompt, None),
    }
    for quantity, (found, predicted, sigma, peak) in known.items():
        if math.isfinite(found) and found > 0:
            band = predicted * (1 - sigma), predicted * (1 + sigma)
            name, load = _name(setting), str(setting.concurrency)
            yield Score(name, _group(server), quantity, load, predicted, found, *band, naive=peak)


def _sigmas(setup: ArmSetup, setting: Setting) -> tuple[float, float]:
    """One sigma of a decode step with all users, and of a prompt's pass alone; relative."""
    decode = decode_step(setup, setting.concurrency, setting.isl + setting.osl // 2)
    prefill = price_step(setup, DraftWork(prefill_pass(setting.isl), 0, 0, 0))
    error = setup.cost.relative_error
    return decode.error(error), prefill.error(error)


def _scenario(server: Server, setting: Setting) -> Mapping[str, Any]:
    if server.backend not in ENGINES:
        raise ScenarioError(f"backend {server.backend!r} has no engine profile")
    if not setting.tp:
        raise ScenarioError("attention data parallelism, or experts both sliced and spread: not simulated")
    gpu, model = find_gpu(server.gpu), served_model(server.model)
    served = Served(ENGINES[server.backend], gpu, model)
    return {
        "hardware": gpu.name,
        "model": {
            "target": model.name,
            "weight_dtype": weight_dtype(server, model),
            "kv_cache_dtype": kv_dtype(server, gpu),
        },
        "engine": engine_arguments(served, setting),
        "cost_model": cost_arguments(served),
        "arms": {"plain": {}},
        "workload": wave_workload(setting.concurrency, setting.isl, setting.osl),
    }
