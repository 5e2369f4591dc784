"""Points at which the bound of a decode step changes, and the time of a prompt: all from prices of single passes."""

from collections.abc import Callable
from dataclasses import dataclass

from sim.cost.base import NO_ATTENTION, AttentionLoad, ForwardPass, PassCost
from sim.cost.passes import plain_pass, prefill_pass
from sim.experiment.analytic import price_step
from sim.scenario.build import ArmSetup, resolved
from sim.speculation.base import DraftWork

#: No ridge is looked for beyond this many tokens of a pass.
MOST_TOKENS = 2**17
#: Nor a context beyond this.
MOST_CONTEXT = 2**24


@dataclass(frozen=True, slots=True)
class KvEqualsWeights:
    """The context at which attention of a plain decode step takes as long as its linear layers; None: never."""

    batch: int
    context_tokens: int | None


@dataclass(frozen=True, slots=True)
class Prefill:
    """One prompt alone in the server: the least that TTFT can be.

    Attributes:
        prompt_tokens: its length.
        chunks: steps that it takes.
        total_ms: all of them, host included.
        draft_ms: the drafter's part: its own prefill, and the first drafts.
    """

    prompt_tokens: int
    chunks: int
    total_ms: float
    draft_ms: float


def ridge_tokens(cost: PassCost) -> int | None:
    """Fewest tokens in a pass from which computing its linear layers takes longer than moving their bytes.

    None when that happens at no size up to `MOST_TOKENS`.
    """
    return _first(lambda tokens: not cost.price(_linear_only(tokens)).memory_bound, MOST_TOKENS)


def _linear_only(tokens: int) -> ForwardPass:
    """A pass without logits, and with as little attention as there can be."""
    return ForwardPass(1, tokens, 0, 0, AttentionLoad(1, 1, 1, 1), NO_ATTENTION)


def kv_equals_weights(cost: PassCost, batch: int) -> KvEqualsWeights:
    """Where reading KV overtakes the linear layers in plain decoding at this batch."""

    def overtaken(context: int) -> bool:
        price = cost.price(plain_pass(batch, context))
        return price.attention > 0 and price.attention >= price.linear

    return KvEqualsWeights(batch, _first(overtaken, MOST_CONTEXT))


def _first(holds: Callable[[int], bool], most: int) -> int | None:
    """Smallest number from 1 on at which a condition, once true, stays true; None if not up to `most`."""
    high = 1
    while not holds(high):
        if high >= most:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def prefill_of(setup: ArmSetup, prompt_tokens: int) -> Prefill:
    """Steps of one prompt in chunks of the token budget; the last one emits the first token and drafts."""
    k = setup.draft_tokens(1)
    size, done, total_s, draft_s, chunks = _chunk_tokens(setup, prompt_tokens), 0, 0.0, 0.0, 0
    while done < prompt_tokens:
        new = min(size, prompt_tokens - done)
        last = done + new == prompt_tokens
        forward = prefill_pass(new, done, last_chunk=last)
        step = price_step(setup, DraftWork(forward, int(last), prompt_tokens * last, k))
        done, chunks = done + new, chunks + 1
        total_s, draft_s = total_s + step.seconds(), draft_s + step.draft_s
    return Prefill(prompt_tokens, chunks, total_s * 1e3, draft_s * 1e3)


def _chunk_tokens(setup: ArmSetup, prompt_tokens: int) -> int:
    engine = setup.engine
    if not engine.enable_chunked_prefill:
        return prompt_tokens
    budget = resolved(engine.max_num_scheduled_tokens)
    return min(budget, engine.long_prefill_token_threshold or budget)
