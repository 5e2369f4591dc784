"""The workload of a scenario: which requests arrive when, how long they are and which class they belong to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from sim.errors import ScenarioError
from sim.rng import Streams
from sim.spec import Seq, Spec
from sim.units import PositiveCount
from sim.workload.arrivals.base import ARRIVALS, ArrivalProcess
from sim.workload.lengths.base import LENGTHS, LengthDistribution
from sim.workload.lengths.fixed import Fixed
from sim.workload.lengths.trace import FromTrace
from sim.workload.prefixes import PrefixChoice, SharedPrefix, continued, grouped, of_sessions
from sim.workload.requests import Ints, RequestTable, Sessions
from sim.workload.traces import Trace, TraceChoice

#: vLLM's usual benchmark lengths, where neither lengths nor a trace are given.
DEFAULT_PROMPT_TOKENS, DEFAULT_OUTPUT_TOKENS = 1024, 256
MAX_REQUESTS = 1_000_000

Lengths = Annotated[LengthDistribution, LENGTHS]
NumRequests = Annotated[PositiveCount, Field(le=MAX_REQUESTS)]
LeftOut = Annotated[int, Field(ge=0, le=MAX_REQUESTS)]


class TrafficClass(Spec):
    """One kind of traffic.

    Attributes:
        name: how results call it.
        share: of the requests, relative to the other classes' shares.
        speculate: False = its requests opt out of speculation.
        prompt_tokens, output_tokens: lengths of this class; null = those of the workload.
        shared_prefix: system prompt of this class; null = that of the workload.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,79}$")]
    share: Annotated[float, Field(gt=0, le=1e9)]
    speculate: bool = True
    prompt_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    shared_prefix: PrefixChoice | None = None


class WorkloadFacts(NamedTuple):
    """What a workload will ask for, known without drawing it: for checks before a run.

    Attributes:
        num_requests: N.
        mean_prompt_tokens, mean_output_tokens: expected, classes weighted by share.
        mean_first_prompt_tokens: the same of requests that open a session; all do where there are no sessions.
        max_prompt_tokens, max_output_tokens: the longest there can be.
        trace_rows: requests in the trace window, 0 without a trace.
        trace_span_s: time of the window's last arrival; 0 without a trace.
    """

    num_requests: int
    mean_prompt_tokens: float
    mean_output_tokens: float
    mean_first_prompt_tokens: float
    max_prompt_tokens: int
    max_output_tokens: int
    trace_rows: int
    trace_span_s: float


class Workload(Spec):
    """The requests, the same for all arms of a replicate.

    Each row's class, lengths and gap come from its own uniforms, so more requests never change the earlier ones and
    one setting never moves the draws of another. Trace arrivals give row i the lengths of trace row i. Otherwise row i
    takes trace row (i + offset) mod n of the window, with an offset per replicate, far apart: replicates see different
    stretches, neighbours stay neighbours, and the trace may be used more than once.

    Attributes:
        trace: recorded requests for `kind: trace`: a shipped id, a file, or a mapping with a window.
        arrivals: when requests come.
        prompt_tokens, output_tokens: lengths; default from the trace if there is one, else 1024 and 256. With arrivals
            of kind sessions the prompt tokens are those that a turn adds.
        shared_prefix: tokens that come before the prompt tokens of every request and are the same for many: a system
            prompt. A number of tokens, or a mapping. Prefix caching computes them once.
        classes: traffic classes; none = one class `default` that speculates.
        num_requests: how many; null = automatic. closed: 8 per user, at least 200, at most 10,000 but never below 2
            per user. poisson, gamma: ten minutes of traffic, 2,000 to 50,000. trace: the whole window.
        warmup_requests, cooldown_requests: first and last requests left out of statistics; null = automatic.
    """

    trace: TraceChoice | None = None
    arrivals: Annotated[ArrivalProcess, ARRIVALS]
    prompt_tokens: Lengths = Field(default_factory=lambda given: _default_lengths(given, DEFAULT_PROMPT_TOKENS))
    output_tokens: Lengths = Field(default_factory=lambda given: _default_lengths(given, DEFAULT_OUTPUT_TOKENS))
    shared_prefix: PrefixChoice | None = None
    classes: Seq[TrafficClass] = ()
    num_requests: NumRequests | None = None
    warmup_requests: LeftOut | None = None
    cooldown_requests: LeftOut | None = None

    @field_validator("arrivals", "prompt_tokens", "output_tokens")
    @classmethod
    def _has_its_trace(cls, value: ArrivalProcess | LengthDistribution, info: ValidationInfo) -> Any:
        if value.needs_trace and "trace" in info.data and info.data["trace"] is None:
            raise ValueError("kind trace needs workload.trace: a shipped trace or a file")
        return value

    @field_validator("classes")
    @classmethod
    def _usable_classes(cls, classes: tuple[TrafficClass, ...], info: ValidationInfo) -> tuple[TrafficClass, ...]:
        names = [traffic.name for traffic in classes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"class names must differ; given twice: {', '.join(twice)}")
        for traffic in classes:
            for lengths in (traffic.prompt_tokens, traffic.output_tokens):
                if lengths is not None:
                    cls._has_its_trace(lengths, info)
        return classes

    @model_validator(mode="after")
    def _something_is_measured(self) -> Self:
        left_out = (self.warmup_requests or 0) + (self.cooldown_requests or 0)
        if self.num_requests is not None and left_out >= self.num_requests:
            raise ValueError(f"warmup_requests + cooldown_requests ({left_out}) leave none of {self.num_requests}")
        return self

    def requests(self, streams: Streams, base_dir: Path) -> RequestTable:
        """The request table of one replicate.

        Args:
            streams: its random numbers; uses the streams `arrivals`, `classes`, `lengths/prompt`, `lengths/output`,
                `prefixes`, `sessions/turns`, `sessions/think` and `trace offset`.
            base_dir: folder that a relative trace path starts from.

        Raises:
            ScenarioError: the trace cannot be read, or is shorter than a replay of `num_requests`.
        """
        trace = self.load_trace(base_dir)
        num = self._count(trace)
        sessions = self.arrivals.sessions(num, streams)
        class_id = self._class_ids(streams, num)
        if sessions is not None:
            class_id = class_id[sessions.first_row]
        rows = self._trace_rows(streams, num, trace)
        prompt = [traffic.prompt_tokens or self.prompt_tokens for traffic in self._classes]
        output = [traffic.output_tokens or self.output_tokens for traffic in self._classes]
        observed = (None, None) if trace is None else (trace.input_tokens[rows], trace.output_tokens[rows])
        new_tokens = _draw(prompt, class_id, streams.per_row("lengths/prompt", num), observed[0])
        output_tokens = _draw(output, class_id, streams.per_row("lengths/output", num), observed[1])
        group, prefix_tokens = self._groups(streams, class_id, sessions)
        prefixes = grouped(group, prefix_tokens)
        prompt_tokens = new_tokens + prefix_tokens
        if sessions is not None:
            prompt_tokens = continued(sessions, prompt_tokens, output_tokens)
            prefixes = of_sessions(sessions, prefixes, prompt_tokens, output_tokens)
        elif trace is not None and trace.block_hashes is not None and self.takes_block_hashes:
            prefixes = trace.block_hashes.shared(rows, prompt_tokens)
        return RequestTable(
            arrival_ns=self.arrivals.arrival_ns(num, streams, None if trace is None else trace.arrival_ns),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            class_id=class_id,
            speculate=np.array([traffic.speculate for traffic in self._classes])[class_id],
            class_names=tuple(traffic.name for traffic in self._classes),
            prefixes=prefixes if (prefixes.tokens > 0).any() else None,
            sessions=sessions,
        )

    def facts(self, base_dir: Path) -> WorkloadFacts:
        """Sizes for checks before a run; reads the trace.

        Raises:
            ScenarioError: the trace cannot be read.
        """
        trace = self.load_trace(base_dir)
        observed = (None, None) if trace is None else (trace.input_tokens, trace.output_tokens)
        shares, earlier, turns = self._shares(), self.arrivals.turns_before, self.arrivals.max_turns
        prefix = [0 if shared is None else shared.tokens for shared in self._shared_prefixes]
        prompt = [traffic.prompt_tokens or self.prompt_tokens for traffic in self._classes]
        output = [traffic.output_tokens or self.output_tokens for traffic in self._classes]
        mean_prefix, mean_new = (
            float(shares @ prefix),
            float(shares @ [lengths.mean_tokens(observed[0]) for lengths in prompt]),
        )
        mean_output = float(shares @ [lengths.mean_tokens(observed[1]) for lengths in output])
        most_new = max(lengths.max_tokens(observed[0]) for lengths in prompt)
        most_output = max(lengths.max_tokens(observed[1]) for lengths in output)
        return WorkloadFacts(
            num_requests=self._count(trace),
            mean_prompt_tokens=mean_prefix + mean_new + earlier * (mean_new + mean_output),
            mean_output_tokens=mean_output,
            mean_first_prompt_tokens=mean_prefix + mean_new,
            max_prompt_tokens=max(prefix) + most_new + (turns - 1) * (most_new + most_output),
            max_output_tokens=most_output,
            trace_rows=0 if trace is None else len(trace),
            trace_span_s=0.0 if trace is None else trace.span_s,
        )

    def load_trace(self, base_dir: Path) -> Trace | None:
        """The trace window, or None without a trace; see `TraceSource.load`.

        Raises:
            ScenarioError: the trace cannot be read, or arrivals are of kind `trace` and it has no times.
        """
        trace = None if self.trace is None else self.trace.load(base_dir)
        if trace is not None and self.arrivals.needs_trace and not trace.timed:
            raise ScenarioError("token streams have no arrival times; allowed: closed, poisson or gamma")
        return trace

    @property
    def takes_block_hashes(self) -> bool:
        """Whether prompts are those of the trace as they stand, so that its block hashes say what they share."""
        lengths = [traffic.prompt_tokens or self.prompt_tokens for traffic in self._classes]
        whole = all(kind.needs_trace for kind in lengths) and self.arrivals.max_turns == 1
        return whole and not any(self._shared_prefixes)

    @property
    def _shared_prefixes(self) -> list[SharedPrefix | None]:
        """By class."""
        return [traffic.shared_prefix or self.shared_prefix for traffic in self._classes]

    def _groups(self, streams: Streams, class_id: Ints, sessions: Sessions | None) -> tuple[Ints, Ints]:
        """Which shared prefix comes before each row's own tokens (-1 = none), and its length in tokens."""
        group, tokens = np.full(len(class_id), -1), np.zeros(len(class_id), np.int64)
        uniforms = streams.per_row("prefixes", len(class_id))
        begins = np.ones(len(class_id), np.bool_) if sessions is None else sessions.turn == 0
        for index, prefix in enumerate(self._shared_prefixes):
            if prefix is not None:
                mine = (class_id == index) & begins
                own = self._classes[index].shared_prefix is not None
                group[mine] = prefix.choose(uniforms[mine]) + (MAX_REQUESTS * (index + 1) if own else 0)
                tokens[mine] = prefix.tokens
        return group, tokens

    @property
    def _classes(self) -> tuple[TrafficClass, ...]:
        return self.classes or (TrafficClass(name="default", share=1.0),)

    def _shares(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        shares = np.array([traffic.share for traffic in self._classes])
        return np.asarray(shares / shares.sum())

    def _count(self, trace: Trace | None) -> int:
        if self.num_requests is not None:
            return self.num_requests
        return min(self.arrivals.automatic_num_requests(0 if trace is None else len(trace)), MAX_REQUESTS)

    def _class_ids(self, streams: Streams, num: int) -> Ints:
        bounds = np.cumsum(self._shares())[:-1]
        return np.searchsorted(bounds, streams.per_row("classes", num), side="right").astype(np.int64)

    def _trace_rows(self, streams: Streams, num: int, trace: Trace | None) -> Ints:
        """The trace row of each request; empty without a trace."""
        if trace is None:
            return np.zeros(0, np.int64)
        if self.arrivals.needs_trace:
            return np.arange(num) % len(trace)
        # The first replicate's offset is drawn; the others follow at the golden ratio, as far apart as they can be.
        drawn = float(Streams(streams.seed).per_row("trace offset", 1)[0])
        offset = int((drawn + streams.replicate * GOLDEN_RATIO) % 1.0 * len(trace))
        return (np.arange(num) + offset) % len(trace)


#: Multiples of it, modulo 1, are spread as evenly as any sequence can be.
GOLDEN_RATIO = (5**0.5 - 1) / 2


def _default_lengths(given: Mapping[str, Any], tokens: int) -> LengthDistribution:
    return Fixed(value=tokens) if given.get("trace") is None else FromTrace()


def _draw(kinds: list[LengthDistribution], class_id: Ints, uniforms: Any, observed: Ints | None) -> Ints:
    """Each row's length from its class's distribution."""
    lengths = np.empty(len(class_id), np.int64)
    for index, kind in enumerate(kinds):
        mine = class_id == index
        lengths[mine] = kind.draw(uniforms[mine], None if observed is None else observed[mine])
    return lengths
