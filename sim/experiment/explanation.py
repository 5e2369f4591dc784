"""What `specsim explain` says, as data: the words of `sim/experiment/explain.py` and `sim/report/explain.py`."""

from dataclasses import dataclass

from sim.experiment.capacity import Memory
from sim.experiment.landmarks import KvEqualsWeights, Prefill
from sim.experiment.step_table import StepTable

Json = dict[str, object]
Ranges = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Deployed:
    """Names and formats of the deployment.

    Attributes:
        experts_per_gpu: experts of a layer that one GPU holds whole; None where GPUs hold slices, or there are none.
    """

    gpu: str
    num_gpus: int
    target: str
    weight_dtype: str
    kv_cache_dtype: str
    experts_per_gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """The workload in means.

    Attributes:
        shared_prompt_frac: share of the prompt tokens that an earlier request begins with as well.
        decode_context_tokens: context of a decoding request, over its output tokens; what a decode step meets.
    """

    num_requests: int
    mean_prompt_tokens: float
    mean_output_tokens: float
    shared_prompt_frac: float
    decode_context_tokens: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Where step times come from and how sure they are.

    Attributes:
        trust: `exact`, `calibrated`, `same generation` or `uncertain`.
        covers: what the profile was fitted on; "" for other kinds.
        host_overlapped: asynchronous scheduling hides the host behind the GPU.
        engine: whose fixed costs are charged; "" for cost models without an engine profile.
        draft_launch_ms: a drafter pass takes at least this.
        draft_token_us: of verifying one draft token, on top of the kernels.
    """

    kind: str
    profile: str
    relative_error: float
    trust: str
    covers: str
    host_base_ms: float
    host_per_request_ms: float
    host_overlapped: bool
    engine: str
    draft_launch_ms: float
    draft_token_us: float


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What the acceptance model says at the arm's largest K; `traffic` is "" for the arm's own model.

    Attributes:
        profile: what the kind was given: a profile, a catalogue id, what a file holds.
        tokens_per_step: with the bonus token.
        acceptance_rate: accepted over drafted tokens; None where how much is drafted depends on the text.
        alpha: the one rate per draft with the same tokens per step; None where steps do not draft chains of K.
        rates: P(a step accepts at least i drafts), by position i.
        conditional_rates: the same given that the drafts before were accepted.
    """

    traffic: str
    kind: str
    profile: str
    tokens_per_step: float
    acceptance_rate: float | None
    alpha: float | None
    rates: tuple[float, ...]
    conditional_rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The closed form of one arm at one context.

    Attributes:
        document: as under `analytic` in `breakeven.json`, without the curve.
        batch_1: speed-up at batch 1: as priced, and band.
        largest_batch: the same at the largest batch that fits.
        pays, pays_if_slower, pays_if_faster: ranges of batches at which the arm pays, as priced and at the edges of
            the band; a crossing is interpolated between whole batches.
        reason: why there is no closed form; the rest is empty then.
    """

    context_tokens: int
    document: Json
    batch_1: tuple[float, float, float] | None
    largest_batch: tuple[float, float, float] | None
    pays: Ranges
    pays_if_slower: Ranges
    pays_if_faster: Ranges
    reason: str


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """One arm.

    Attributes:
        verification: the rule that verifies its drafts; None when it drafts nothing.
        lossless: whether its output is distributed as without speculation.
        host_memory_bytes: of the host, for drafting: caches and datastores of methods that look drafts up.
        drafts_nothing_at: (first, last) batches at which its batch-size table says K = 0 though a drafter is loaded.
    """

    name: str
    speculates: bool
    speculative_config: Json
    drafter: str | None
    verification: str | None
    lossless: bool
    host_memory_bytes: float
    drafts_nothing_at: tuple[tuple[int, int], ...]
    acceptance: tuple[Acceptance, ...]
    memory: Memory
    prefill: Prefill
    break_even: tuple[BreakEven, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer.

    Attributes:
        engine: the preset, what it set, and what is stated otherwise, in lines.
        varied: fields that the sweep varies; the scenario is explained with the values written outside the sweep.
        ridge_tokens: tokens of a pass from which the linear layers are compute-bound; None: at no size.
        kv_equals_weights: per batch.
    """

    name: str
    baseline: str
    deployed: Deployed
    demand: Demand
    cost: Cost
    engine: tuple[str, ...]
    varied: tuple[str, ...]
    notes: tuple[str, ...]
    arms: tuple[ArmFacts, ...]
    tables: tuple[StepTable, ...]
    ridge_tokens: int | None
    kv_equals_weights: tuple[KvEqualsWeights, ...]
