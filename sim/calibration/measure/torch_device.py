"""Timing with PyTorch: CUDA graphs replayed between CUDA events. Imports PyTorch only when a device is opened.

Attention is FlashAttention-3 or -2 where installed (`flash_attn_interface`, `flash_attn`), else PyTorch's own with
grouped queries. The new tokens see the context up to themselves (a causal mask aligned at the end).
"""

import importlib
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from sim.calibration.measure.plan import AttentionCase, GemmCase, Limits, StepCase
from sim.errors import CalibrationError
from sim.models.model import Model

Call = Callable[[], object]
#: (q [batch, new, heads, dim], k, v [batch, context, kv heads, dim]) -> the same shape as q.
Attend = Callable[[Any, Any, Any], Any]

_WARM_UP, _REPEATS = 3, 21
#: A graph holds at least so many calls, so that its launch does not count.
_LEAST_CALLS = 8


def open_device() -> "TorchDevice":
    """The first CUDA device.

    Raises:
        CalibrationError: PyTorch is not installed, or finds no CUDA device.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise CalibrationError(
            "--measure needs PyTorch, which is not installed: pip install 'specsim[measure]'"
        ) from None
    if not torch.cuda.is_available():
        raise CalibrationError(f"--measure needs a CUDA device; PyTorch {torch.__version__} finds none here")
    return TorchDevice(torch, "cuda")


def find_attention(torch: Any, device: str) -> tuple[str, Attend]:
    """Name and function of the best attention that is installed; PyTorch's own off the GPU."""
    for package, name in (("flash_attn_interface", "flash_attn_fa3"), ("flash_attn", "flash_attn_fa2")):
        try:
            module = importlib.import_module(package) if device == "cuda" else None
        except ImportError:
            continue
        if module is not None:
            version = getattr(module, "__version__", "unversioned")
            return f"{name}-{version}", flash_attention(module.flash_attn_with_kvcache)
    return f"torch_sdpa-{torch.__version__}", sdpa_attention(torch)


def flash_attention(with_kvcache: Callable[..., Any]) -> Attend:
    """The call that engines use for decode and verification: it splits the KV over the GPU where that pays."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        return with_kvcache(q, k, v, causal=True)

    return attend


def sdpa_attention(torch: Any) -> Attend:
    """PyTorch's attention; a mask only where several new tokens need one."""
    bias = importlib.import_module("torch.nn.attention.bias")

    def attend(q: Any, k: Any, v: Any) -> Any:
        new, context, grouped = q.shape[1], k.shape[1], q.shape[2] != k.shape[2]
        mask = None if new == 1 else bias.causal_lower_right(new, context)
        out = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, enable_gqa=grouped
        )
        return out.transpose(1, 2)

    return attend


class TorchDevice:
    """A CUDA device; on the CPU (tests only) calls are timed by the clock."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch, self._device = torch, device
        self.attention_kernel, self._attend = find_attention(torch, device)
        self._steps: dict[str, Any] = {}
        facts = torch.cuda.get_device_properties(0) if device == "cuda" else None
        self.name = "CPU" if facts is None else str(facts.name)
        self.sms = 1 if facts is None else int(facts.multi_processor_count)
        self.limits = (
            Limits(2**30, 2**20) if facts is None else Limits(int(facts.total_memory), int(facts.L2_cache_size))
        )
        self.stack = f"torch-{torch.__version__}/cuda-{torch.version.cuda}"

    def time_gemm(self, case: GemmCase) -> float | None:
        """One matrix product."""

        def build() -> list[Call]:
            linear = self._torch.nn.functional.linear
            x = self._random(case.m, case.k)
            weights = [self._random(case.n, case.k) for _ in range(case.copies)]
            return [lambda w=w: linear(x, w) for w in weights]  # type: ignore[misc]

        return self._timed(build)

    def time_attention(self, case: AttentionCase) -> float | None:
        """Attention of one layer."""

        def build() -> list[Call]:
            q = self._random(case.batch, case.q_len, case.q_heads, case.head_dim)
            size = (case.batch, case.context, case.kv_heads, case.head_dim)
            caches = [(self._random(*size), self._random(*size)) for _ in range(case.copies)]
            return [lambda kv=kv: self._attend(q, *kv) for kv in caches]  # type: ignore[misc]

        return self._timed(build)

    def time_step(self, model: Model, case: StepCase) -> float | None:
        """All layers, LM head and greedy sampling."""
        if model.name not in self._steps:
            self._steps = {model.name: DecoderWeights(model, self._random)}
        weights: DecoderWeights = self._steps[model.name]
        return self._timed(
            lambda: [decoder_step(self._torch, weights, case, self._attend, self._random)], least_calls=1
        )

    def _random(self, *size: int) -> Any:
        return self._torch.randn(size, dtype=self._torch.bfloat16, device=self._device).mul_(0.02)

    def _timed(self, build: Callable[[], list[Call]], least_calls: int = _LEAST_CALLS) -> float | None:
        """Median time of one call; None when memory runs out."""
        try:
            with self._torch.inference_mode():
                calls = build()
                calls = calls * -(-least_calls // len(calls))
                return self._replayed(calls) if self._device == "cuda" else _clocked(calls)
        except self._torch.OutOfMemoryError:
            return None
        finally:
            if self._device == "cuda":
                self._torch.cuda.empty_cache()

    def _replayed(self, calls: Sequence[Call]) -> float:
        """The calls one after the other in a graph, replayed between events."""
        cuda = self._torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for call in calls[:_LEAST_CALLS]:
                call()
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for call in calls:
                call()
        times = []
        for _ in range(_WARM_UP + _REPEATS):
            begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(1e3 * begin.elapsed_time(end) / len(calls))
        return float(median(times[_WARM_UP:]))


def _clocked(calls: Sequence[Call]) -> float:
    time = importlib.import_module("time")
    begin = time.perf_counter()
    for call in calls:
        call()
    return float(1e6 * (time.perf_counter() - begin) / len(calls))


class DecoderWeights:
    """Random weights of a dense decoder, as one GPU holds them."""

    def __init__(self, model: Model, random: Callable[..., Any]) -> None:
        self.model = model
        shapes = {shape.name: shape for shape in model.linear_shapes()}
        self.layers = [
            {name: random(shapes[name].n_out, shapes[name].k_in) for name in ("qkv", "o", "gate_up", "down")}
            for _ in range(model.layers)
        ]
        self.norm = random(model.hidden)
        self.lm_head = random(model.vocab, model.hidden)


def decoder_step(
    torch: Any, weights: DecoderWeights, case: StepCase, attend: Attend, random: Callable[..., Any]
) -> Call:
    """A step of a Llama-like decoder over a KV cache of random values.

    Norms, rotary embedding, attention, gated MLP, LM head on every row, argmax.
    """
    model, new = weights.model, case.num_draft_tokens + 1
    ops, heads = torch.nn.functional, (model.q_heads, model.kv_heads, model.kv_heads)
    size = (case.batch, case.context + new, model.kv_heads, model.head_dim)
    caches = [(random(*size), random(*size)) for _ in range(model.layers)]
    hidden, turn = random(case.batch * new, model.hidden), random(new, 1, model.head_dim)

    def norm(x: Any) -> Any:
        return ops.rms_norm(x, (model.hidden,), weights.norm)

    def rotate(x: Any) -> Any:
        half = model.head_dim // 2
        return x * turn + torch.cat((-x[..., half:], x[..., :half]), -1) * turn

    def layer(x: Any, w: dict[str, Any], cache: tuple[Any, Any]) -> Any:
        qkv = ops.linear(norm(x), w["qkv"]).view(case.batch, new, sum(heads), model.head_dim)
        q, k, v = qkv.split(heads, dim=2)
        cache[0][:, case.context :].copy_(rotate(k))
        cache[1][:, case.context :].copy_(v)
        mixed = attend(rotate(q), *cache).reshape(case.batch * new, -1)
        x = x + ops.linear(mixed, w["o"])
        gate, up = ops.linear(norm(x), w["gate_up"]).chunk(2, dim=-1)
        return x + ops.linear(ops.silu(gate) * up, w["down"])

    def step() -> Any:
        x = hidden
        for w, cache in zip(weights.layers, caches, strict=True):
            x = layer(x, w, cache)
        return ops.linear(norm(x), weights.lm_head).float().argmax(-1)

    return step
