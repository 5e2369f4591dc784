"""A speculation method: what it drafts with, and what that costs in time, memory and KV slots. Contract of this folder.

The spec is spelled like vLLM's `--speculative-config`, so that a config can be pasted. `Plain` is the zero: it drafts
no tokens and costs nothing.
"""

from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, Self

from sim.acceptance.base import AcceptanceModel, Floats, Streams, Tape
from sim.cost.base import NO_ATTENTION, AttentionLoad, BoundCost, ForwardPass
from sim.deployment import Deployment
from sim.draft_length.base import DraftLength
from sim.draft_length.fixed import Fixed
from sim.models.model import Model
from sim.proposers.base import Proposer
from sim.spec import Family, Spec
from sim.speculation.facts import MethodFacts
from sim.theory.draft_trees import TreeShape
from sim.workload.requests import RequestTable


class DraftWork(NamedTuple):
    """What a drafter is asked to do at the end of one engine step.

    Attributes:
        target: the target's pass of this step. Drafters with KV of their own take in all of its tokens in their first
            pass, prompt chunks included (rejected drafts stay as padding: vLLM `eagle.py`).
        num_seqs: sequences that get new drafts: those that emitted a token in this step and speculate.
        kv_tokens: sum of their context lengths.
        num_draft_tokens: K, drafts per sequence; 0 still runs the first pass of a loaded drafter: its KV stays in step.
            The largest, when sequences differ.
        narrowing: (sequences, their KV tokens) that take part in passes 2, 3, ..., K, when sequences differ in their
            drafts; empty when all take part in every pass.
        catch_up: tokens that a drafter which stood still has missed and prefills before its first pass.
    """

    target: ForwardPass
    num_seqs: int
    kv_tokens: int
    num_draft_tokens: int
    narrowing: tuple[tuple[int, int], ...] = ()
    catch_up: AttentionLoad = NO_ATTENTION


class Drafter(Protocol):
    """A method bound to a deployment and its cost."""

    def draft_seconds(self, work: DraftWork) -> float:
        """Time of drafting after the target pass; 0 for `plain`."""
        ...


class SpeculationMethod(Spec):
    """`speculative_config` of an arm.

    `bind` needs the deployment because a drafter's passes are priced on the same GPUs.
    """

    #: What docs/methods.md says beside what it computes; None only for methods that draft nothing.
    facts: ClassVar[MethodFacts | None] = None
    #: The network that drafts is part of the target: no weights and no KV of its own.
    shares_target: ClassVar[bool] = False
    #: Whether drafts are drawn from a distribution q that a verification rule can look at; look-ups have none.
    drafts_have_probabilities: ClassVar[bool] = True
    #: Drafts are made on the CPU, so the next step cannot be scheduled before this one is done.
    drafts_on_cpu: ClassVar[bool] = False
    #: How many drafts a step finds depends on the text, so that closed forms do not hold.
    draft_count_varies: ClassVar[bool] = False
    #: Whether a block of another K has other first drafts, so that a smaller K is not the start of a larger one.
    first_drafts_depend_on_k: ClassVar[bool] = False
    #: Keys of the look-up: they act where acceptance is computed from tokens (`stream_replay`).
    lookup_keys: ClassVar[tuple[str, ...]] = ()

    method: str

    def located(self, base_dir: Path) -> Self:
        """This config with relative names of data files taken from `base_dir`; itself when it names none."""
        return self

    @property
    def proposer(self) -> Proposer | None:
        """The rule that drafts from tokens; None when a network drafts, or nothing does."""
        return None

    @property
    def max_draft_tokens(self) -> int:
        """The largest K this config can ask for: drafts verified per request and step; 0 for `plain`."""
        raise NotImplementedError

    @property
    def tree_shape(self) -> TreeShape | None:
        """The shape of the token trees it drafts; None for chains."""
        return None

    @property
    def max_accepted_tokens(self) -> int:
        """The most drafts one step can accept: `max_draft_tokens` for chains, the depth for trees."""
        return self.max_draft_tokens if self.tree_shape is None else self.tree_shape.depth

    @property
    def one_alpha(self) -> bool:
        """Whether every step drafts a chain of K, which one rate per draft can sum up."""
        return self.max_accepted_tokens == self.max_draft_tokens and not self.draft_count_varies

    def accepted_share(self, accepted_per_step: float) -> float | None:
        """Accepted over drafted tokens, as a run reports it; None where how much is drafted depends on the text."""
        return None if self.draft_count_varies else accepted_per_step / self.max_draft_tokens

    def tape(self, acceptance: AcceptanceModel, requests: RequestTable, streams: Streams) -> Tape:
        """Draw what is accepted of this method's drafts.

        Raises:
            ScenarioError: the acceptance model says nothing about drafts of this size or shape.
        """
        if self.tree_shape is None:
            tape = acceptance.tape(requests, self.max_accepted_tokens, streams)
        else:
            tape = acceptance.tree_tape(requests, self.tree_shape, streams)
        return acceptance.within_context(tape, requests, streams)

    def survival(self, acceptance: AcceptanceModel, num_draft_tokens: int) -> Floats:
        """P(a step that verifies K = `num_draft_tokens` >= 1 drafts accepts at least 1, 2, ... of them).

        Raises:
            ScenarioError: as `tape`.
        """
        if self.tree_shape is None:
            return acceptance.survival(min(num_draft_tokens, self.max_accepted_tokens))
        return acceptance.tree_survival(self.tree_shape, num_draft_tokens)

    @property
    def lookahead_tokens(self) -> int:
        """KV slots reserved per request for the next drafts: K for drafters with KV of their own, else 0."""
        raise NotImplementedError

    @property
    def use_eagle(self) -> bool:
        """Whether a prefix hit loses its last block, which the drafter has to see again (vLLM's `use_eagle`).

        True of drafters that read the target's hidden states: EAGLE, MTP and their like.
        """
        return False

    @property
    def draft_length(self) -> DraftLength:
        """The rule that picks K for the next step, when the arm states none."""
        return Fixed()

    @property
    def needs_equal_vocabulary(self) -> bool:
        """Whether drafts are token ids of the drafter's own vocabulary, which must then be the target's."""
        return False

    def num_draft_passes(self, num_draft_tokens: int) -> int:
        """Passes of the drafter's network for this many drafts."""
        return 0

    def drafter_tensor_parallel_size(self, tensor_parallel_size: int) -> int:
        """GPUs the drafter is sharded over, given the target's; the target's unless the config says otherwise."""
        return tensor_parallel_size

    def drafter_model(self, target: Model, base_dir: Path) -> Model | None:
        """Shape of the network that drafts, or None when there is none (n-gram, plain).

        Args:
            target: the model it drafts for.
            base_dir: folder that relative `config.json` paths start from.
        """
        raise NotImplementedError

    def host_memory_bytes(self, mean_output_tokens: float) -> float:
        """Memory of the host, not of the GPU, that drafting needs when outputs have this mean length."""
        return 0.0

    def verification_cost(self, cost: BoundCost) -> BoundCost:
        """The prices under this method; other than `cost` only where verification reuses what drafting computed."""
        return cost

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """Price this drafter on the deployment."""
        raise NotImplementedError


SPECULATION: Family[SpeculationMethod] = Family("speculation", "sim.speculation", tag="method")
