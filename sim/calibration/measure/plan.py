"""What to time: shapes of a model's matrix products, attention over batch x context x new tokens, whole steps."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.models.model import Model

TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
NEW_TOKENS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
STEP_CONTEXTS = (1024, 4096, 16384)
DRAFTS = tuple(range(8))

QUICK_TOKENS = (1, 8, 32, 64, 128, 256, 512, 2048)
QUICK_BATCHES = (1, 8, 64)
QUICK_CONTEXTS = (1024, 8192, 65536)
QUICK_NEW_TOKENS = (1, 2, 4, 8)
QUICK_STEP_CONTEXTS = (1024, 8192)
QUICK_DRAFTS = (0, 3, 7)

#: Buffers are rotated until they are so many times the L2 cache together: then none is found there again.
_SPILL = 4
#: Share of the GPU's memory that buffers may take.
_SHARE = 0.6
_BYTES = 2


class Limits(NamedTuple):
    """The GPU's memory and L2 cache, in bytes."""

    memory: int
    l2: int


class GemmCase(NamedTuple):
    """[m, k] x [k, n] in BF16, with the weights in `copies` places."""

    m: int
    n: int
    k: int
    copies: int


class AttentionCase(NamedTuple):
    """`q_len` new tokens per sequence, the last of `context` tokens, in BF16, with the KV in `copies` places."""

    batch: int
    q_len: int
    context: int
    q_heads: int
    kv_heads: int
    head_dim: int
    copies: int


class StepCase(NamedTuple):
    """A whole captured step: `batch` sequences over `context` cached tokens, 1 + `num_draft_tokens` new ones each."""

    batch: int
    context: int
    num_draft_tokens: int


class Plan(NamedTuple):
    """Everything to time for one model; `left_out` says what does not fit or has no kernel here."""

    gemms: tuple[GemmCase, ...]
    attention: tuple[AttentionCase, ...]
    steps: tuple[StepCase, ...]
    left_out: tuple[str, ...]


def make_plan(model: Model, limits: Limits, quick: bool) -> Plan:
    """The cases that fit the memory."""
    gemms = list(_gemms(model, limits, QUICK_TOKENS if quick else TOKENS))
    attention = [] if model.is_mla else list(_attention(model, limits, quick))
    steps = list(_steps(model, limits, quick)) if _can_step(model) else []
    left_out = []
    if model.is_mla:
        left_out.append("attention: MLA has no kernel here")
    if not _can_step(model):
        left_out.append("whole steps: only dense models with full attention are built here")
    elif not steps:
        left_out.append("whole steps: the model does not fit this GPU")
    return Plan(tuple(gemms), tuple(attention), tuple(steps), tuple(left_out))


def _gemms(model: Model, limits: Limits, tokens: Sequence[int]) -> Iterable[GemmCase]:
    shapes = dict.fromkeys((s.n_out, s.k_in) for s in (*model.linear_shapes(), model.lm_head_shape()))
    for n, k in shapes:
        weights = _BYTES * n * k
        for m in tokens:
            copies = _copies(weights, limits)
            if copies * weights + _BYTES * m * (n + k) <= _SHARE * limits.memory:
                yield GemmCase(m, n, k, copies)


def _attention(model: Model, limits: Limits, quick: bool) -> Iterable[AttentionCase]:
    batches, contexts = (QUICK_BATCHES, QUICK_CONTEXTS) if quick else (BATCHES, CONTEXTS)
    for q_len in QUICK_NEW_TOKENS if quick else NEW_TOKENS:
        for batch in batches:
            for context in contexts:
                kv = 2 * _BYTES * batch * context * model.kv_heads * model.head_dim
                copies = _copies(kv, limits)
                if copies * kv <= _SHARE * limits.memory:
                    heads = (model.q_heads, model.kv_heads, model.head_dim)
                    yield AttentionCase(batch, q_len, context, *heads, copies)


def _steps(model: Model, limits: Limits, quick: bool) -> Iterable[StepCase]:
    weights = model.weight_bytes("bf16")
    for context in QUICK_STEP_CONTEXTS if quick else STEP_CONTEXTS:
        for batch in QUICK_BATCHES if quick else BATCHES:
            for drafts in QUICK_DRAFTS if quick else DRAFTS:
                kv = batch * (context + drafts + 1) * model.kv_bytes_per_token()
                if weights + kv <= 0.9 * limits.memory:
                    yield StepCase(batch, context, drafts)


def _can_step(model: Model) -> bool:
    return not (model.is_mla or model.experts or model.window)


def _copies(size: int, limits: Limits) -> int:
    """So many buffers that together they spill the L2 cache."""
    return max(1, -(-_SPILL * limits.l2 // size))
