"""The whole language between the server and physics: a forward pass in, seconds by op group out.

The cost model never sees requests. `ForwardPass` holds what a pass contains; `PassCost` prices it; `CostModel` is what
a scenario writes (`cost_model: {kind: ...}`) and binds to a deployment. Used by the server, the drafters and `theory`.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from sim.deployment import Deployment
from sim.spec import Family, Spec
from sim.units import Milliseconds


class AttentionLoad(NamedTuple):
    """What attention has to do for one class of sequences.

    Attributes:
        num_seqs: sequences in the class.
        num_tokens: their new tokens (queries).
        kv_tokens_read: KV tokens read, each sequence's KV once per pass whatever its number of new tokens:
            sum over sequences of cached + new tokens.
        pairs: query-key pairs under the causal mask: sum of q*c + q*(q+1)/2 for q new tokens over c cached ones.
    """

    num_seqs: int
    num_tokens: int
    kv_tokens_read: int
    pairs: int


NO_ATTENTION = AttentionLoad(0, 0, 0, 0)


class ForwardPass(NamedTuple):
    """One pass of one model over a batch.

    Attributes:
        num_seqs: sequences in the pass.
        num_tokens: new tokens of all sequences.
        num_logit_rows: rows that go through the LM head and the sampler: 1 + drafts for a verified sequence, 0 for a
            prefill chunk that does not finish its prompt.
        num_draft_tokens: draft tokens verified in the pass (0 in plain decode and in every drafter pass).
        decode: the sequences with exactly one new token.
        extend: the sequences with several: verification and prefill chunks.
    """

    num_seqs: int
    num_tokens: int
    num_logit_rows: int
    num_draft_tokens: int
    decode: AttentionLoad
    extend: AttentionLoad


class PassPrice(NamedTuple):
    """Seconds of one pass, by op group; `seconds` is their sum.

    Attributes:
        seconds: the whole pass.
        linear: QKV, output, gate-up and down projections (and experts).
        attention: reading the KV cache and the score and value products.
        lm_head: LM head and sampler.
        collective: all-reduces of tensor parallelism.
        fixed: norms, activations, launch and per-verified-token overheads.
        memory_bound: True when moving bytes takes longer than computing (ties count as memory).
        extrapolated: True when the pass lies outside of what the model was given or measured on (`table`).
    """

    seconds: float
    linear: float
    attention: float
    lm_head: float
    collective: float
    fixed: float
    memory_bound: bool
    extrapolated: bool = False


OP_GROUPS = ("linear", "attention", "lm_head", "collective", "fixed")


class PassCost(Protocol):
    """A cost model bound to one model on one deployment."""

    def price(self, forward: ForwardPass) -> PassPrice:
        """Time of the pass; 0 tokens cost 0 seconds. Called once per engine step: a few microseconds at most."""
        ...


class NoCost:
    """Prices every pass at nothing."""

    __slots__ = ()

    def price(self, forward: ForwardPass) -> PassPrice:
        """Always 0."""
        return PassPrice(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, True)


NO_COST = NoCost()


@dataclass(frozen=True, slots=True)
class HostOverhead:
    """CPU time of the engine per step: scheduling, sampling bookkeeping, detokenisation.

    Attributes:
        base_s: per step.
        per_request_s: per sequence in the step.
        is_remainder: what sticks out beside the GPU anyway, so that asynchronous scheduling hides none of it.
    """

    base_s: float
    per_request_s: float
    is_remainder: bool = False

    def seconds(self, num_seqs: int) -> float:
        """Host time of a step with `num_seqs` sequences."""
        return self.base_s + self.per_request_s * num_seqs


class Host(Spec):
    """CPU time of a step as a scenario writes it: `{base_ms: 0.3, per_request_ms: 0.02}`."""

    base_ms: Milliseconds = 0.0
    per_request_ms: Milliseconds = 0.0

    def bind(self) -> HostOverhead:
        """The same in seconds."""
        return HostOverhead(self.base_ms * 1e-3, self.per_request_ms * 1e-3)


@dataclass(frozen=True, slots=True)
class EngineError:
    """One-sigma errors of what the engine adds to a speculative step; all 0 for values that the user stated.

    Attributes:
        step_s: per step that verifies drafts.
        per_row_s, per_draft_token_s: per row through the LM head, per draft token verified.
        draft_pass_s: per drafter pass.
        kv_reads: of the number of times attention reads the KV of verified sequences.
    """

    step_s: float = 0.0
    per_row_s: float = 0.0
    per_draft_token_s: float = 0.0
    draft_pass_s: float = 0.0
    kv_reads: float = 0.0

    def seconds(self, forward: ForwardPass, price: PassPrice, draft_passes: int) -> float:
        """Error of the step whose target pass is `forward`, in quadrature; 0 without drafts."""
        drafts = forward.num_draft_tokens
        if not drafts:
            return 0.0
        return math.hypot(
            self.step_s,
            self.per_row_s * drafts,
            self.per_draft_token_s * drafts,
            self.draft_pass_s * draft_passes,
            self.kv_reads * price.attention,
        )


@dataclass(frozen=True, slots=True)
class BoundCost:
    """Everything the server and the drafter need to price a step of one deployment.

    Attributes:
        target: prices passes of the target model.
        draft: prices passes of the drafter's model; equal to `target` when the deployment has no drafter model.
        host: CPU time per step.
        intake: prices what the drafter does once with every token of the target's pass before its own first pass
            (`Model.intake_shapes`); nothing for models that price whole passes.
        draft_launch_s: the shortest drafter pass: launches run ahead of the GPU, so a pass takes the longer of them and
            its kernels.
        profile: id of the fitted parameters, such as `h100-sxm/bf16`, for manifests and badges.
        relative_error: one-sigma relative error of step times: 0.08 calibrated GPU and dtype, 0.15 same generation,
            0.25 otherwise; 0 for models that are exact by definition (`constant`).
        engine_error: errors of the engine's share of speculative steps.
        caveats: why results lie outside of what was checked, one clause each.
        checked_batch, checked_context_tokens: up to where speculative steps were compared with measurements; None when
            that says nothing (`linear`, `constant`).
    """

    target: PassCost
    draft: PassCost
    host: HostOverhead
    draft_launch_s: float
    profile: str
    relative_error: float
    engine_error: EngineError = EngineError()
    caveats: tuple[str, ...] = ()
    checked_batch: int | None = None
    checked_context_tokens: int | None = None
    intake: PassCost = NO_COST

    def draft_pass_seconds(self, forward: ForwardPass, tokens_taken_in: int = 0) -> float:
        """One drafter pass: its kernels, or its launches where those take longer.

        Args:
            forward: the pass; without tokens it has no kernels.
            tokens_taken_in: tokens of the target's pass whose states the drafter takes in before this one.
        """
        seconds = self.draft.price(forward).seconds
        if tokens_taken_in:
            taken_in = ForwardPass(0, tokens_taken_in, 0, 0, NO_ATTENTION, NO_ATTENTION)
            seconds += self.intake.price(taken_in).seconds
        return max(seconds, self.draft_launch_s)


class CostModel(Spec):
    """How long passes take. Alternatives: one file per kind in this folder."""

    kind: str

    def located(self, base_dir: Path) -> Self:
        """This model with relative file names taken from `base_dir`; itself when it names no file."""
        return self

    def bind(self, deployment: Deployment) -> BoundCost:
        """Price passes of this deployment's target and drafter.

        Raises:
            ScenarioError: the model cannot price this deployment (for instance FP8 weights on a GPU without FP8).
        """
        raise NotImplementedError


COST_MODELS: Family[CostModel] = Family("cost", "sim.cost")
