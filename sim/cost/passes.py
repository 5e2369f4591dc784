"""Forward passes of uniform batches: for closed forms, reports and tests. The server builds its own."""

from sim.cost.base import NO_ATTENTION, AttentionLoad, ForwardPass


def plain_pass(batch: int, context: int) -> ForwardPass:
    """Plain decode: `batch` sequences, each with `context` cached tokens and one new one."""
    return verify_pass(batch, context, 0)


def verify_pass(batch: int, context: int, num_draft_tokens: int) -> ForwardPass:
    """Verification: `batch` sequences, each with `context` cached tokens and 1 + `num_draft_tokens` new ones."""
    new = 1 + num_draft_tokens
    return ForwardPass(batch, batch * new, batch * new, batch * num_draft_tokens, *_loads(batch, new, context))


def prefill_pass(tokens: int, cached: int = 0, batch: int = 1, last_chunk: bool = True) -> ForwardPass:
    """Prefill: `batch` sequences with `tokens` new tokens over `cached` ones; a last chunk samples one row each."""
    rows = batch if last_chunk else 0
    return ForwardPass(batch, batch * tokens, rows, 0, *_loads(batch, tokens, cached))


def _loads(batch: int, new: int, cached: int) -> tuple[AttentionLoad, AttentionLoad]:
    """Decode and extend load of `batch` equal sequences: exactly one of them is not empty."""
    pairs = new * cached + new * (new + 1) // 2
    load = AttentionLoad(batch, batch * new, batch * (cached + new), batch * pairs)
    return (load, NO_ATTENTION) if new == 1 else (NO_ATTENTION, load)


def join_passes(first: ForwardPass, second: ForwardPass) -> ForwardPass:
    """Both batches in one mixed pass."""
    return ForwardPass(
        num_seqs=first.num_seqs + second.num_seqs,
        num_tokens=first.num_tokens + second.num_tokens,
        num_logit_rows=first.num_logit_rows + second.num_logit_rows,
        num_draft_tokens=first.num_draft_tokens + second.num_draft_tokens,
        decode=_join_loads(first.decode, second.decode),
        extend=_join_loads(first.extend, second.extend),
    )


def _join_loads(a: AttentionLoad, b: AttentionLoad) -> AttentionLoad:
    return AttentionLoad(*(x + y for x, y in zip(a, b, strict=True)))
