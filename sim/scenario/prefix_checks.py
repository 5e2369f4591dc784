"""Prefix caching against what the workload shares, and sessions against the context they grow into."""

from collections.abc import Iterator

from sim.routing.prefix_affinity import PrefixAffinity
from sim.scenario.document import Path
from sim.scenario.findings import Context, Finding, note, reads
from sim.workload.prefixes import SharedPrefix

CACHING = "enable_prefix_caching"
CACHING_KEY = f"engine.{CACHING}"
_ALONE = "no prompts of this workload begin alike, so only preempted requests find blocks again"


@reads("workload", "engine", "sweep")
def _caching_matters(context: Context) -> Iterator[Finding]:
    shares, varied = _shares(context), CACHING_KEY in context.scenario.sweep.vary
    if varied and not shares:
        yield note(("sweep", "vary", CACHING_KEY), f"all but no effect: {_ALONE}")
    if shares and not varied and not context.scenario.engine.filled().enable_prefix_caching:
        yield note(("engine", CACHING), "off although prompts begin alike: every prompt is computed in full")


@reads("workload", "engine")
def _prefixes_fill_a_block(context: Context) -> Iterator[Finding]:
    block_size = context.scenario.engine.filled().block_size or 1
    for path, prefix in _prefixes(context):
        if prefix.tokens < block_size:
            message = (
                f"{prefix.tokens} tokens do not fill a KV block of {block_size}: they are never found in the cache"
            )
            yield note(path, message)


@reads("workload")
def _prefixes_are_used(context: Context) -> Iterator[Finding]:
    workload = context.scenario.workload
    replaced = bool(workload.classes) and all(traffic.shared_prefix for traffic in workload.classes)
    if workload.shared_prefix is not None and replaced:
        yield note(("workload", "shared_prefix"), "no effect: every class has its own")


@reads("workload")
def _block_hashes_are_used(context: Context) -> Iterator[Finding]:
    workload = context.scenario.workload
    if context.facts is None or workload.takes_block_hashes:
        return
    trace = workload.load_trace(context.base_dir)
    if trace is not None and trace.block_hashes is not None:
        message = "hash_ids have no effect: prompts are not those of the trace as they stand"
        yield note(("workload", "trace"), message)


@reads("workload", "engine", "hardware", "model")
def _sessions_fit_the_context(context: Context) -> Iterator[Finding]:
    workload, limit, facts = context.scenario.workload, context.max_model_len, context.facts
    if limit is None or facts is None or workload.arrivals.max_turns == 1:
        return
    path: Path = ("workload", "arrivals", "turns")
    ends = f"but engine.max_model_len = {limit}: a session ends at the turn that does not fit"
    # On average a request stands in the middle of its session: as much is still to come as went before.
    typical = 2 * facts.mean_prompt_tokens - facts.mean_first_prompt_tokens + facts.mean_output_tokens
    if typical > limit:
        yield note(path, f"a typical session grows to about {typical:,.0f} tokens, {ends}")
    elif facts.max_prompt_tokens + facts.max_output_tokens > limit:
        longest = facts.max_prompt_tokens + facts.max_output_tokens
        yield note(path, f"the longest session grows to {longest:,} tokens, {ends}")


@reads("router", "workload", "engine", "sweep")
def _router_finds_prefixes(context: Context) -> Iterator[Finding]:
    scenario = context.scenario
    if not isinstance(scenario.router, PrefixAffinity):
        return
    if not _shares(context):
        yield note(("router",), "requests go to the replica with the fewest outstanding: no prompts begin alike")
    elif not scenario.engine.enable_prefix_caching and CACHING_KEY not in scenario.sweep.vary:
        yield note(("router",), f"nothing is gained by it: {CACHING_KEY} is off")


def _prefixes(context: Context) -> Iterator[tuple[Path, SharedPrefix]]:
    """Every shared prefix that is stated, with its place."""
    workload = context.scenario.workload
    if workload.shared_prefix is not None:
        yield ("workload", "shared_prefix"), workload.shared_prefix
    for index, traffic in enumerate(workload.classes):
        if traffic.shared_prefix is not None:
            yield ("workload", "classes", index, "shared_prefix"), traffic.shared_prefix


def _shares(context: Context) -> bool:
    """Whether some prompts begin alike."""
    workload = context.scenario.workload
    if workload.arrivals.max_turns > 1 or any(True for _ in _prefixes(context)):
        return True
    if context.facts is None or not workload.takes_block_hashes:
        return False
    trace = workload.load_trace(context.base_dir)
    return trace is not None and trace.block_hashes is not None
