"""The group of whole steps: from `vllm bench forward` JSON, or from tables of captured steps."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.calibration.forward_json import Step
from sim.calibration.groups import Group, Parameter
from sim.calibration.kernels import Rows, Setting
from sim.calibration.plausible import DTYPES
from sim.calibration.read import Floats, Table
from sim.cost.base import ForwardPass
from sim.cost.passes import verify_pass
from sim.cost.stack import RooflineCost, Stack
from sim.hardware.engine_profile import find_engine
from sim.hardware.profile import Fit, StepFit
from sim.models.catalogue import find_model


class Server(NamedTuple):
    """What a step was measured on, apart from the GPU."""

    model: str
    tp: int
    dtype: str
    kv_dtype: str


class StepPoint(NamedTuple):
    """One measured step."""

    place: tuple[str, int]
    server: Server
    forward: ForwardPass
    time_us: float
    shape: str


def table_steps(tables: Iterable[Table]) -> list[StepPoint]:
    """The rows of tables of whole steps: `batch` sequences over `context` cached tokens, 1 + drafts new ones each."""
    points = []
    for table in tables:
        for i, row in enumerate(table.rows if table.form == "step" else ()):
            texts, n = table.texts, table.numbers
            dtype, kv_dtype = (DTYPES.get(texts[name][i], texts[name][i]) for name in ("dtype", "kv_dtype"))
            batch, context, drafts = (int(n[name][i]) for name in ("batch", "context", "num_draft_tokens"))
            server = Server(texts["model"][i], int(n["tp"][i]), dtype, kv_dtype)
            shape = f"{context}:{drafts}"
            forward = verify_pass(batch, context, drafts)
            points.append(StepPoint((table.file, row), server, forward, float(n["time_us"][i]), shape))
    return points


def forward_steps(steps: Iterable[Step], model: str, dtype: str) -> list[StepPoint]:
    """The cases of `vllm bench forward`, which do not name their model."""
    return [
        StepPoint((s.file, s.row), Server(model, s.ranks, dtype, "bf16"), s.forward, s.time_us, s.group) for s in steps
    ]


def step_group(points: Sequence[StepPoint], setting: Setting) -> Group:
    """`steps`: what lies between the kernels of the base profile and whole steps of this engine."""
    kernels = {server: _kernels(server, setting) for server in {point.server for point in points}}
    measured = np.array([point.time_us for point in points])
    logit_rows = np.array([point.forward.num_logit_rows for point in points], dtype=float)

    def predict(section: Fit, rows: Rows) -> Floats:
        if not isinstance(section, StepFit):
            raise TypeError(section)
        passes = [kernels[points[i].server].price(_reread(points[i].forward, section.kv_reads)) for i in rows]
        seconds = np.array([price.seconds for price in passes])
        times: Floats = section.time_scale * 1e6 * seconds + section.per_step_us + section.per_row_us * logit_rows[rows]
        return times

    typical = float(np.median(measured))
    parameters = (
        Parameter("time_scale", 0.2, 5.0, 0.1),
        Parameter("per_step_us", 0.0, 2.0 * typical, 0.1 * typical),
        Parameter("per_row_us", 0.0, 300.0, 4.0),
        Parameter("kv_reads", 1.0, 12.0, 0.5),
    )
    places, shapes = tuple(point.place for point in points), tuple(point.shape for point in points)
    return Group("steps", places, measured, shapes, predict, base_steps(setting), parameters)


def _reread(forward: ForwardPass, reads: float) -> ForwardPass:
    """As `RooflineCost` does it: verified sequences, and prefill chunks in the same pass, read their KV so often."""
    if not forward.num_draft_tokens:
        return forward
    return forward._replace(extend=forward.extend._replace(kv_tokens_read=round(forward.extend.kv_tokens_read * reads)))


def base_steps(setting: Setting) -> StepFit:
    """The base profile's, or what the default engine's profile says."""
    engine = find_engine("vllm")
    return setting.base.profile.steps or StepFit(
        source=f"engine profile {engine.id}", per_row_us=engine.per_row_us.value, kv_reads=engine.kv_reads.value
    )


def _kernels(server: Server, setting: Setting) -> RooflineCost:
    model = find_model(server.model, Path.cwd())
    dtype = model.resolve_weight_dtype(server.dtype)
    return RooflineCost(Stack(setting.gpu, setting.base, server.tp, dtype, server.kv_dtype).bind(model))
