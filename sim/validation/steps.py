"""Whole decoder steps: layers and attention timed inside an engine, summed, against what the cost model gives.

Measured: products, element-wise kernels, LM head and sampler at the number of tokens of the step (interpolated), and
the attention call. `verify` takes the nearest measured stand-in for verification: decoding sequences in one call with a
chunk of 16 new tokens, priced as if each sequence had 1 + K tokens outside attention.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.calibration.attention import MIXED, MIXED_DECODE
from sim.calibration.fit import ErrorStats, Floats, error_stats
from sim.calibration.layers import LAYER_PRODUCTS, NORMS, PRODUCTS, layer_shape, model_of
from sim.calibration.operators import Operator, Rows, left_out_us
from sim.calibration.tables import Table, read_table
from sim.cost.base import NO_ATTENTION, AttentionLoad, ForwardPass
from sim.cost.formats import resolve_format
from sim.cost.gemm import bind_gemm
from sim.cost.stack import RooflineCost, Stack
from sim.errors import CalibrationError, ScenarioError
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import ChosenProfile, choose_profile
from sim.validation.servers import Choose

#: Draft tokens of the verify stand-in.
_DRAFTS = 3


class StepErrors(NamedTuple):
    """Errors of whole steps of one model on one GPU; `attention_share` is attention's share of the measured time."""

    gpu: str
    model: str
    tp: str
    kind: str
    shipped: ErrorStats
    left_out: ErrorStats | None
    naive: ErrorStats
    attention_share: float


def compare_steps(folder: Path, choose: Choose = choose_profile, *, refit: bool = True) -> list[StepErrors]:
    """Steps of every GPU and model with layers and mixed attention in the folder; empty without those tables.

    Args:
        folder: of the form of `data/gpu_timings`.
        choose: the profile to price a GPU with; by default the best shipped one.
        refit: also predict from fits without the shape at hand.
    """
    return [
        errors
        for layers, attention in _groups(folder)
        if attention and not _obstacle(layers)
        for errors in _errors_of(layers, attention, choose, refit)
    ]


class SkippedSteps(NamedTuple):
    """Rows of layers that make no whole step, and why."""

    what: str
    rows: int
    reason: str


def skipped_steps(folder: Path) -> list[SkippedSteps]:
    """What `compare_steps` leaves out."""
    return [
        SkippedSteps(f"whole steps: {' '.join(next(iter(layers.keys(_KEY))))}", len(layers), reason)
        for layers, attention in _groups(folder)
        if (reason := _obstacle(layers) or ("" if attention else "no rows of it in attention_mixed.csv"))
    ]


_KEY = ("gpu", "model", "tp")


def _groups(folder: Path) -> list[tuple[Table, Table | None]]:
    """Layers and mixed attention of every GPU, model and TP; nothing without both tables."""
    if not ((folder / "layers.csv").is_file() and (folder / "attention_mixed.csv").is_file()):
        return []
    layers = read_table(folder / "layers.csv", LAYER_PRODUCTS.columns, ("tp", "tokens", "time_us"))
    mixed = read_table(folder / "attention_mixed.csv", (*MIXED.columns, "tp"), ("tp", "time_us"), MIXED.columns[5:9])
    kernels = dict(mixed.groups(_KEY))
    return [(rows, kernels.get(key)) for key, rows in layers.groups(_KEY)]


def _obstacle(layers: Table) -> str:
    """Why no whole step can be summed; "" for none."""
    try:
        find_gpu(str(layers.text("gpu")[0]))
        experts = model_of(layers).experts
    except (ScenarioError, CalibrationError) as error:
        return str(error).splitlines()[0]
    if experts:
        return "a mixture of experts, whose experts are not among its layers"
    missing = {*PRODUCTS, "lm_head", "sampler"} - set(map(str, layers.text("layer")))
    return f"layers not measured: {', '.join(sorted(missing))}" if missing else ""


def _errors_of(layers: Table, attention: Table, choose: Choose, refit: bool) -> list[StepErrors]:
    """Nothing where too few rows are there to refit."""
    try:
        return _Steps(layers, attention, choose, refit).errors()
    except CalibrationError:
        return []


class _Steps:
    """Measured and predicted steps of one model on one GPU."""

    def __init__(self, layers: Table, attention: Table, choose: Choose, refit: bool) -> None:
        self.choose, self.refit = choose, refit
        self.gpu, self.model = find_gpu(str(layers.text("gpu")[0])), model_of(layers)
        self.tp, self.layers, self.attention = int(layers.numbers("tp")[0]), layers, attention

    def errors(self) -> list[StepErrors]:
        """Plain decode, the verify stand-in, and all mixed batches."""
        new, cached = self.attention.numbers("prefill_q"), self.attention.numbers("prefill_ctx")
        decoding = self.attention.numbers("n_decode") > 0
        verify = decoding & (new == 16) & (cached == 0)
        kinds = {"decode": (decoding & (new == 0), MIXED_DECODE, 0), "verify": (verify, MIXED, _DRAFTS),
                 "mixed": (new > 1, MIXED, 0)}  # fmt: skip
        return [self._errors(kind, *how) for kind, how in kinds.items() if how[0].any()]

    def _errors(self, kind: str, mask: np.ndarray, operator: Operator, drafts: int) -> StepErrors:
        rows = Rows(self.gpu, self.attention.where(operator.usable(Rows(self.gpu, self.attention))))
        inside = mask[operator.usable(Rows(self.gpu, self.attention))]
        tokens, samples = self._tokens(rows.table, drafts, with_chunk=kind == "mixed")
        inside &= (tokens <= self._most("qkv_proj")) & (samples <= self._most("sampler"))
        held = left_out_us(operator, rows, operator.fit(rows)) if self.refit else None
        rows, tokens, samples = rows.where(inside), tokens[inside], samples[inside]
        depth, kernel = self.model.layers, rows.times_us
        measured = self._body_us(tokens) + self._head_us(samples) + depth * kernel
        left_out = None if held is None else self._left_out(tokens, samples) + depth * held[inside]
        profiles = (self.choose(self.gpu), choose_profile(self.gpu, "ideal"))
        shipped, naive = (self._priced(rows.table, tokens, samples, profile) for profile in profiles)
        return StepErrors(
            self.gpu.name, self.model.name, str(self.tp), kind, error_stats(shipped, measured),
            None if left_out is None else error_stats(left_out, measured), error_stats(naive, measured),
            float(np.mean(depth * kernel / measured)),
        )  # fmt: skip

    def _tokens(self, table: Table, drafts: int, with_chunk: bool) -> tuple[Floats, Floats]:
        """New tokens and sampled rows of each step."""
        batch, chunk = table.numbers("n_decode"), table.numbers("prefill_q")
        if with_chunk:
            return batch + chunk, batch + 1.0
        return batch * (1.0 + drafts), batch * (1.0 + drafts)

    def _most(self, layer: str) -> float:
        return float(self._times(layer)[0].max())

    def _times(self, layer: str) -> tuple[Floats, Floats]:
        own = self.layers.where(self.layers.text("layer") == layer)
        tokens, times = own.numbers("tokens"), own.numbers("time_us")
        order = np.argsort(tokens)
        return tokens[order], times[order]

    def _measured(self, layer: str, tokens: Floats) -> Floats:
        times: Floats = np.interp(tokens, *self._times(layer))
        return times

    def _present(self) -> dict[str, int]:
        names = set(map(str, self.layers.text("layer")))
        return {name: times for name, times in (dict.fromkeys(PRODUCTS, 1) | NORMS).items() if name in names}

    def _body_us(self, tokens: Floats) -> Floats:
        times = [count * self._measured(name, tokens) for name, count in self._present().items()]
        total: Floats = self.model.layers * np.sum(times, axis=0)
        return total

    def _head_us(self, samples: Floats) -> Floats:
        return self._measured("lm_head", samples) + self._measured("sampler", samples)

    def _priced(self, table: Table, tokens: Floats, samples: Floats, profile: ChosenProfile) -> Floats:
        """The cost model's own price of each step."""
        stack = Stack(self.gpu, profile, self.tp, "bf16", "bf16")
        cost = RooflineCost(stack.bind(self.model))
        loads = zip(*_loads(table), tokens, samples, strict=True)
        return np.array(
            [
                1e6 * cost.price(ForwardPass(0, int(t), int(s), 0, decode, extend)).seconds
                for decode, extend, t, s in loads
            ]
        )

    def _left_out(self, tokens: Floats, samples: Floats) -> Floats:
        """Products without their own layer in the fit, LM head from the other layers, the rest as shipped."""
        rows = Rows(self.gpu, self.layers.where(LAYER_PRODUCTS.usable(Rows(self.gpu, self.layers))))
        start = LAYER_PRODUCTS.fit(rows).parameters
        total = np.zeros(len(tokens))
        for layer in sorted(set(map(str, rows.table.text("layer")))):
            others = rows.where(rows.table.text("layer") != layer)
            fit = LAYER_PRODUCTS.section(others, LAYER_PRODUCTS.fit(others, start).parameters)
            total += self.model.layers * self._product(layer, fit, tokens)
        parts = Stack(self.gpu, choose_profile(self.gpu), self.tp, "bf16", "bf16").bind(self.model)
        whole = LAYER_PRODUCTS.section(rows, start)
        total += self._product("lm_head", whole, samples)
        fixed = [
            parts.elementwise.seconds(int(t)) + parts.sampler.seconds(int(s))
            for t, s in zip(tokens, samples, strict=True)
        ]
        return total + 1e6 * np.array(fixed)

    def _product(self, layer: str, fit: Any, tokens: Floats) -> Floats:
        shape = layer_shape(self.model, layer, self.tp)
        rate = bind_gemm(shape, resolve_format("bf16", self.gpu), fit, self.gpu.memory_bandwidth)
        return np.array([rate.terms(int(t)).seconds * 1e6 for t in tokens])


def _loads(table: Table) -> tuple[list[AttentionLoad], list[AttentionLoad]]:
    """Decode and extend load of each row of a mixed table."""
    decode, extend = [], []
    names = ("prefill_q", "prefill_ctx", "n_decode", "decode_ctx")
    for new, cached, batch, context in zip(*(table.numbers(n).astype(int).tolist() for n in names), strict=True):
        decode.append(AttentionLoad(batch, batch, batch * context, batch * context))
        chunk = AttentionLoad(1, new, new + cached, new * cached + new * (new + 1) // 2)
        extend.append(chunk if new else NO_ATTENTION)
    return decode, extend
