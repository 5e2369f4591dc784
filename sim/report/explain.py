"""The text and the JSON of `specsim explain`: sections of aligned plain text, at most 100 columns."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from sim.experiment.explanation import Acceptance, ArmFacts, Cost, Explanation
from sim.report.explain_steps import step_lines
from sim.report.explain_verdict import verdict_lines
from sim.report.plain_text import bold, columns, count, labelled, number, printable, short, verified
from sim.scenario.suggestions import flow

#: arms beside each other in the memory table
_ARMS_PER_TABLE = 4
_TRUST = {
    "exact": "a model with given times, exact by definition",
    "calibrated": "calibrated on this GPU and weight format",
    "same generation": "not calibrated here: borrowed from a GPU of the same generation",
    "uncertain": "uncertain: no profile covers this GPU, weight format or model type (experts, MLA)",
}


def explanation_json(explanation: Explanation) -> str:
    """One JSON document with everything, units in the names."""
    return json.dumps({"schema_version": 1, **asdict(explanation)}, indent=1, allow_nan=False)


def explanation_text(
    explanation: Explanation, *, every_k: bool = False, breakdown: bool = False, colour: bool = False
) -> str:
    """The answer for people.

    Args:
        explanation: what to say.
        every_k: step times of every K in the tables; else K = 0 and those of the arms.
        breakdown: the target's time by op group, beside.
        colour: bold headings.
    """
    sections = {
        "": _head(explanation),
        "Does it pay? Closed form: steady decoding at equal batch, no prefill and no queue": verdict_lines(explanation),
        "Arms": _arms(explanation.arms),
        "Cost model": _cost(explanation),
        "Memory of each GPU, GiB": _memory(explanation.arms),
        **{
            title: lines
            for table in explanation.tables
            for title, lines in step_lines(table, every_k=every_k, breakdown=breakdown)
        },
        "Where the bound changes": _landmarks(explanation),
        "Prefill of a mean prompt, alone in the server: the floor of TTFT": _prefill(explanation.arms),
    }
    lines: list[str] = []
    for title, body in sections.items():
        shown = list(body)
        if shown:
            lines += ["", bold(title, colour)] if title else []
            lines += shown
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(explanation: Explanation) -> Iterator[str]:
    where, demand = explanation.deployed, explanation.demand
    formats = f"{where.weight_dtype} weights, {where.kv_cache_dtype} KV cache"
    yield f"{explanation.name}: {printable(where.target)} on {where.num_gpus} x {printable(where.gpu)}, {formats}"
    if where.experts_per_gpu is not None:
        yield f"expert parallel: {where.experts_per_gpu} whole experts of every layer on each GPU; the busiest decides"
    yield (
        f"prompts {count(demand.mean_prompt_tokens)} tokens, outputs {count(demand.mean_output_tokens)} on average; a "
        f"decode step meets {count(demand.decode_context_tokens)} tokens of context"
    )
    if demand.shared_prompt_frac:
        shared = f"{100 * demand.shared_prompt_frac:.0f} % of the prompt tokens begin like an earlier request"
        yield from labelled("note:", f"{shared}: with prefix caching less is prefilled than shown here", 6)
    for line in explanation.engine:
        head, _, rest = printable(line).partition(": ")
        yield from labelled(f"{head}:", rest, len(head) + 2)
    for note in explanation.notes:
        yield from labelled("note:", printable(note), 6)
    if explanation.varied:
        keys = ", ".join(explanation.varied)
        yield from labelled("note:", f"the sweep varies {keys}; here it is as written outside the sweep", 6)


def _arms(arms: Sequence[ArmFacts]) -> Iterator[str]:
    width = _name_width(arms)
    for arm in arms:
        yield from labelled(f"  {arm.name}", _config(arm), width)
        if arm.verification:
            yield from labelled("", f"verified by {verified(arm.verification, arm.lossless)}", width)
        for acceptance in arm.acceptance:
            yield from labelled("", _accepted(acceptance), width)
        if arm.drafts_nothing_at:
            batches = ", ".join(f"{first:,}-{last:,}" for first, last in arm.drafts_nothing_at)
            text = (
                f"batch {batches}: K = 0, but the drafter's first pass still runs; rows of K = 0 below are without it"
            )
            yield from labelled("", text, width)


def _config(arm: ArmFacts) -> str:
    if not arm.speculates:
        return "plain decoding"
    config = printable(flow(arm.speculative_config))
    drafter = f"; drafts with {printable(arm.drafter)}" if arm.drafter else "; no network"
    if arm.host_memory_bytes:
        drafter += f", {arm.host_memory_bytes / 1e9:.2g} GB of host memory"
    return f"{config}{drafter}; {_slots(arm.memory.lookahead_tokens)} per request"


def _slots(slots: int) -> str:
    return f"{slots} look-ahead slot{'' if slots == 1 else 's'}"


def _accepted(acceptance: Acceptance) -> str:
    name = " ".join(part for part in (acceptance.kind, printable(acceptance.profile)) if part)
    traffic = f"{acceptance.traffic}: " if acceptance.traffic else ""
    rates = " ".join(f"{rate:.3f}" for rate in acceptance.rates)
    share, alpha = acceptance.acceptance_rate, acceptance.alpha
    spelt = [] if share is None else [f"{share:.1%} of drafts accepted"]
    spelt += [] if alpha is None else [f"alpha {alpha:.3f}"]
    summary = f"{', '.join(spelt)}; " if spelt else ""
    mean = f"{acceptance.tokens_per_step:.2f} tokens per step with the bonus"
    return f"{traffic}{mean} ({name}): {summary}by {'position' if alpha is not None else 'depth'} {rates}"


def _cost(explanation: Explanation) -> Iterator[str]:
    cost = explanation.cost
    error = f"; step times +-{100 * cost.relative_error:.0f} % (one sigma)" if cost.relative_error else ""
    yield from labelled("  profile", f"{cost.kind}, {printable(cost.profile)}: {_trusted(cost)}{error}", 12)
    if cost.covers:
        yield from labelled("  covers", printable(cost.covers), 12)
    how = "beside the GPU (asynchronous)" if cost.host_overlapped else "after the GPU"
    host = f"{number(cost.host_base_ms)} ms a step + {number(1e3 * cost.host_per_request_ms)} us per request, {how}"
    yield from labelled("  host", host, 12)
    costs = [f"a drafter pass takes at least {number(cost.draft_launch_ms)} ms"] if cost.draft_launch_ms else []
    if cost.draft_token_us:
        costs.append(f"{number(cost.draft_token_us)} us per draft token verified, on top of the kernels")
    if costs or cost.engine:
        yield from labelled("  engine", "; ".join([cost.engine] * bool(cost.engine) + costs), 12)


def _trusted(cost: Cost) -> str:
    fitted = cost.kind == "roofline" or cost.trust != "uncertain"
    return _TRUST[cost.trust] if fitted else "uncertain: not fitted on this GPU and engine"


def _memory(arms: Sequence[ArmFacts]) -> Iterator[str]:
    for start in range(0, len(arms), _ARMS_PER_TABLE):
        part = arms[start : start + _ARMS_PER_TABLE]
        rows = [["", *(short(arm.name, 15) for arm in part)]]
        rows += [[label, *values] for label, values in _memory_rows(part)]
        yield from columns(rows, indent=2, left=1)
    if any(arm.memory.kv_pool_pinned for arm in arms):
        yield "  num_gpu_blocks_override sets the KV pool: the parts need not add up"


def _memory_rows(arms: Sequence[ArmFacts]) -> Iterator[tuple[str, list[str]]]:
    memories = [arm.memory for arm in arms]
    parts = {
        "GPU total": "total_bytes",
        "usable": "usable_bytes",
        "- target weights": "target_weights_bytes",
        "- drafter weights": "drafter_weights_bytes",
        "- activations": "activations_bytes",
        "- context and graphs": "graphs_bytes",
        "= KV pool": "kv_pool_bytes",
    }
    for label, field in parts.items():
        yield label, [f"{getattr(memory, field) / 2**30:.2f}" for memory in memories]
    yield "KV per token, target (KiB)", [number(m.target_kv_bytes_per_token / 2**10) for m in memories]
    yield "KV per token, drafter (KiB)", [number(m.drafter_kv_bytes_per_token / 2**10) for m in memories]
    yield "KV capacity, tokens", [count(m.kv_capacity_tokens) for m in memories]
    for index, capacity in enumerate(memories[0].capacity):
        label = f"requests of {count(capacity.context_tokens)} tokens in KV"
        yield label, [count(m.capacity[index].requests) for m in memories]
    yield "max_num_seqs", [count(m.max_num_seqs) for m in memories]


def _landmarks(explanation: Explanation) -> Iterator[str]:
    ridge = explanation.ridge_tokens
    if ridge is None:
        yield from labelled("  linear layers compute-bound", "at no batch", 30)
    else:
        ks = sorted({0, *(k for table in explanation.tables for k in table.arm_ks)})
        batches = ", ".join(f"{-(-ridge // (k + 1)):,} {f'with K = {k}' if k else 'plain'}" for k in ks)
        text = f"from {count(ridge)} tokens in a pass on: batch {batches}"
        yield from labelled("  linear layers compute-bound", text, 30)
    reached = [at for at in explanation.kv_equals_weights if at.context_tokens is not None]
    places = "; ".join(f"{count(at.context_tokens)} with {at.batch:,}" for at in reached)
    text = "plain, at context " + places.replace("with", "with batch", 1) if reached else "at no context"
    yield from labelled("  KV read = linear layers", text, 30)


def _prefill(arms: Sequence[ArmFacts]) -> Iterator[str]:
    width = _name_width(arms)
    for arm in arms:
        fill = arm.prefill
        text = f"{number(fill.total_ms)} ms for {count(fill.prompt_tokens)} tokens"
        text += f" in {fill.chunks} chunks" if fill.chunks > 1 else ""
        text += f", {number(fill.draft_ms)} ms of it the drafter" if arm.speculates else ""
        yield from labelled(f"  {arm.name}", text, width)


def _name_width(arms: Iterable[ArmFacts]) -> int:
    return min(34, max(len(arm.name) for arm in arms) + 4)
