"""Fits of layers timed inside an engine: matrix products by name, element-wise kernels, the sampler."""

from pathlib import Path
from typing import Any

import numpy as np

from sim.calibration.fit import Floats
from sim.calibration.operators import Mask, Operator, Parameter, Rows
from sim.calibration.tables import Table
from sim.cost.formats import resolve_format
from sim.cost.gemm import bind_gemm
from sim.cost.stack import ModelParts, Stack
from sim.errors import CalibrationError
from sim.hardware.profile import (
    ChosenProfile,
    ElementwiseFit,
    Fit,
    GemmFit,
    SamplerFit,
    choose_profile,
)
from sim.models.catalogue import find_model
from sim.models.model import Model
from sim.models.shapes import LinearShape

#: Names of layers.csv, and of `LinearShape`.
PRODUCTS = {"qkv_proj": "qkv", "o_proj": "o", "gate_up_proj": "gate_up", "down_proj": "down"}

#: Element-wise kernels of one layer, and how often each runs.
NORMS = {"layernorm": 2, "rotary_emb": 1, "act_fn": 1, "qk_norm": 1}

COLUMNS = ("gpu", "model", "tp", "layer", "tokens", "time_us")


def model_of(table: Table) -> Model:
    """The model of a table with one model."""
    return find_model(str(table.text("model")[0]), Path())


def layer_shape(model: Model, layer: str, tp: int) -> LinearShape:
    """The matrix of a layer named as in layers.csv, once."""
    if layer == "lm_head":
        return model.lm_head_shape(tp)
    found = [shape for shape in model.linear_shapes(tp) if shape.name == PRODUCTS[layer]]
    if not found:
        raise CalibrationError(f"{model.name} has no {layer}")
    return found[0]._replace(layers=1)


def _products_us(rows: Rows, fit: GemmFit) -> Floats:
    table, times = rows.table, np.zeros(len(rows.table))
    model, tp = model_of(table), int(table.numbers("tp")[0])
    fmt, tokens = resolve_format("bf16", rows.gpu), table.numbers("tokens")
    for layer in sorted(set(map(str, table.text("layer")))):
        mask = table.text("layer") == layer
        rate: Any = bind_gemm(layer_shape(model, layer, tp), fmt, fit, rows.gpu.memory_bandwidth)
        times[mask] = rate.terms(tokens[mask]).seconds * 1e6
    return times


def _product_parameters(_: Rows) -> tuple[Parameter, ...]:
    return (
        Parameter("memory_efficiency", 0.9, 0.3, 1.1),  # datasheets of workstation cards disagree by 12 %
        Parameter("compute_efficiency", 0.8, 0.2, 1.1),
        Parameter("smoothness", 2.0, 1.0, 20.0),
        Parameter("launch_us", 5.0, 0.0, 15.0),
        Parameter("per_1000_inputs_us", 0.1, 0.0, 1.0),
        Parameter("rereads", 0.1, 0.0, 2.0),
    )


def _tiles(_: Rows) -> dict[str, Any]:
    """Tables with every 16th number of tokens tell tiles apart: time rises in steps of 128 rows."""
    return {"tile_rows": 128}


def _is_product(rows: Rows) -> Mask:
    return np.isin(rows.table.text("layer"), list(PRODUCTS))


def _shipped_product(chosen: ChosenProfile, _: Rows) -> Fit | None:
    return chosen.linear("bf16")[0]


LAYER_PRODUCTS = Operator(
    name="GEMM in an engine",
    file="layers.csv",
    columns=COLUMNS,
    kinds=("model", "tp"),
    shape=("layer",),
    fit_type=GemmFit,
    constants=_tiles,
    parameters=_product_parameters,
    price_us=_products_us,
    usable=_is_product,
    shipped=_shipped_product,
)


def _parts(rows: Rows) -> ModelParts:
    tp = int(rows.table.numbers("tp")[0])
    return Stack(rows.gpu, choose_profile(rows.gpu), tp, "bf16", "bf16").bind(model_of(rows.table))


def _elementwise_us(rows: Rows, fit: ElementwiseFit) -> Floats:
    """One layer's norms, rotary embedding and activation together."""
    elementwise: Any = _parts(rows).elementwise._replace(fit=fit, layers=1)
    return np.asarray(elementwise.seconds(rows.table.numbers("tokens")) * 1e6)


def _elementwise_constants(_: Rows) -> dict[str, Any]:
    return {"smoothness": 2.0}


def _elementwise_parameters(_: Rows) -> tuple[Parameter, ...]:
    return (Parameter("launch_us", 9.0, 0.0, 40.0), Parameter("traffic_fraction", 0.6, 0.0, 4.0))


def _is_sum(rows: Rows) -> Mask:
    found: Mask = rows.table.text("layer") == "elementwise"
    return found


def _shipped_elementwise(chosen: ChosenProfile, _: Rows) -> Fit | None:
    return chosen.sections().elementwise


ELEMENTWISE = Operator(
    name="norms, rotary embedding, activation",
    file="layers.csv",
    columns=COLUMNS,
    kinds=("model", "tp"),
    shape=("tokens",),
    fit_type=ElementwiseFit,
    constants=_elementwise_constants,
    parameters=_elementwise_parameters,
    price_us=_elementwise_us,
    usable=_is_sum,
    shipped=_shipped_elementwise,
)


def _sampler_us(rows: Rows, fit: SamplerFit) -> Floats:
    sampler = _parts(rows).sampler._replace(fit=fit)
    return np.array([sampler.seconds(int(n)) * 1e6 for n in rows.table.numbers("tokens")])


def _sampler_constants(_: Rows) -> dict[str, Any]:
    return {"free_rows": 64}


def _sampler_parameters(_: Rows) -> tuple[Parameter, ...]:
    return (
        Parameter("launch_us", 25.0, 0.0, 100.0),
        Parameter("per_row_us", 0.3, 0.0, 3.0),
        Parameter("logit_passes", 1.5, 0.0, 8.0),
    )


def _is_sampler(rows: Rows) -> Mask:
    found: Mask = rows.table.text("layer") == "sampler"
    return found


def _shipped_sampler(chosen: ChosenProfile, _: Rows) -> Fit | None:
    return chosen.sections().sampler


SAMPLER = Operator(
    name="sampler",
    file="layers.csv",
    columns=COLUMNS,
    kinds=("model", "tp"),
    shape=("tokens",),
    fit_type=SamplerFit,
    constants=_sampler_constants,
    parameters=_sampler_parameters,
    price_us=_sampler_us,
    usable=_is_sampler,
    shipped=_shipped_sampler,
)


def with_elementwise_sums(table: Table) -> Table:
    """`table` with rows `elementwise`: all element-wise kernels of a layer at the token counts where all are there."""
    added: dict[str, list[str]] = {name: [] for name in table.columns}
    for (gpu, model, tp), rows in table.groups(("gpu", "model", "tp")):
        times = _times_by_layer(rows)
        shared = set.intersection(*(set(own) for own in times.values())) if "layernorm" in times else set()
        for tokens in sorted(shared):
            total = sum(NORMS[layer] * own[tokens] for layer, own in times.items())
            row = {"gpu": gpu, "model": model, "tp": tp, "layer": "elementwise", "tokens": str(tokens)}
            for name in added:
                added[name].append(row.get(name, repr(total) if name == "time_us" else ""))
    columns = {name: np.concatenate([table.columns[name], np.array(added[name], str)]) for name in added}
    return Table(table.name, columns)


def _times_by_layer(rows: Table) -> dict[str, dict[float, float]]:
    """Element-wise layers of one model: token count -> time."""
    found = {}
    for layer in NORMS:
        own = rows.where(rows.text("layer") == layer)
        if len(own):
            found[layer] = dict(zip(own.numbers("tokens").tolist(), own.numbers("time_us").tolist(), strict=True))
    return found
