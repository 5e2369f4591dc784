"""The workload against its trace, the model's context and the engine's limits."""

from collections.abc import Iterator

from sim.errors import ScenarioError
from sim.scenario.document import Path, dotted
from sim.scenario.findings import Context, Finding, note, reads
from sim.workload.lengths.base import LengthDistribution
from sim.workload.lengths.fixed import Fixed
from sim.workload.lengths.trace import FromTrace
from sim.workload.workload import DEFAULT_OUTPUT_TOKENS, DEFAULT_PROMPT_TOKENS


@reads("workload")
def _trace_can_be_read(context: Context) -> Iterator[Finding]:
    try:
        context.scenario.workload.load_trace(context.base_dir)
    except ScenarioError as error:
        for problem in error.problems:
            place = f"{problem.where}: " if problem.where else ""
            yield Finding(("workload", "trace"), place + problem.message)


@reads("workload")
def _trace_is_long_enough(context: Context) -> Iterator[Finding]:
    workload, facts = context.scenario.workload, context.facts
    if facts is not None and workload.arrivals.needs_trace and facts.num_requests > facts.trace_rows:
        message = f"found {facts.num_requests}; the trace window has {facts.trace_rows} requests, each replayed once"
        yield Finding(("workload", "num_requests"), message)


@reads("workload")
def _trace_is_used(context: Context) -> Iterator[Finding]:
    workload = context.scenario.workload
    used = workload.arrivals.needs_trace or any(lengths.needs_trace for _, lengths in _lengths(context))
    if workload.trace is not None and not used:
        yield note(("workload", "trace"), "no effect: neither arrivals nor lengths are of kind trace")


@reads("workload", "engine", "hardware", "model")
def _requests_fit_the_context(context: Context) -> Iterator[Finding]:
    limit = context.max_model_len
    if limit is None or context.facts is None:
        return
    trace = context.scenario.workload.load_trace(context.base_dir)
    for path, lengths in _lengths(context):
        is_prompt = path[-1] == "prompt_tokens"
        observed = None if trace is None else trace.input_tokens if is_prompt else trace.output_tokens
        longest = lengths.max_tokens(observed)
        if longest < limit:
            continue
        if is_prompt and isinstance(lengths, Fixed):
            yield Finding((*path, "value"), f"found {longest}; allowed: below engine.max_model_len = {limit}")
        else:
            fate = "rejected and counted" if is_prompt else "cut there"
            message = f"up to {longest} tokens, but engine.max_model_len = {limit}: such requests are {fate}"
            yield note(path, message)


@reads("workload", "engine", "hardware", "model")
def _users_fit_the_engine(context: Context) -> Iterator[Finding]:
    workload, facts, engine = context.scenario.workload, context.facts, context.engine
    users = getattr(workload.arrivals, "max_concurrency", None)
    if users is None or facts is None or engine is None or engine.max_num_seqs is None:
        return
    path: Path = ("workload", "arrivals", "max_concurrency")
    if users > engine.max_num_seqs and dotted(path) not in context.scenario.sweep.vary:
        yield note(path, f"{users} users, but engine.max_num_seqs = {engine.max_num_seqs}: the rest wait")
    if users > facts.num_requests:
        yield note(("workload", "num_requests"), f"{facts.num_requests} requests for {users} users: some have none")


def _lengths(context: Context) -> Iterator[tuple[Path, LengthDistribution]]:
    """Every length distribution that requests are drawn from, with its place."""
    workload = context.scenario.workload
    for key in ("prompt_tokens", "output_tokens"):
        own = [getattr(traffic, key) for traffic in workload.classes]
        if not own or None in own:
            yield ("workload", key), getattr(workload, key)
        for index, lengths in enumerate(own):
            if lengths is not None:
                yield ("workload", "classes", index, key), lengths


@reads("workload")
def _lengths_are_used(context: Context) -> Iterator[Finding]:
    """Lengths of the workload that every class replaces; the defaults do not count as stated."""
    workload = context.scenario.workload
    defaults = {"prompt_tokens": DEFAULT_PROMPT_TOKENS, "output_tokens": DEFAULT_OUTPUT_TOKENS}
    for key, tokens in defaults.items():
        replaced = bool(workload.classes) and all(getattr(traffic, key) is not None for traffic in workload.classes)
        if replaced and getattr(workload, key) not in (Fixed(value=tokens), FromTrace()):
            yield note(("workload", key), "no effect: every class has its own")


@reads("workload", "arms")
def _opting_out_matters(context: Context) -> Iterator[Finding]:
    if not any(arm.speculates for arm in context.scenario.arms.values()):
        for index, traffic in enumerate(context.scenario.workload.classes):
            if not traffic.speculate:
                yield note(("workload", "classes", index, "speculate"), "no effect: no arm speculates")
