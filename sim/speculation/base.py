"""A speculation method: what it drafts with, and what that costs in time, memory and KV slots. Contract of this folder.

The spec is spelled like vLLM's `--speculative-config`, so that a config can be pasted. `Plain` is the zero: it drafts
no tokens and costs nothing.
"""

from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, Self

from sim.cost.base import BoundCost, ForwardPass
from sim.deployment import Deployment
from sim.draft_length.base import DraftLength
from sim.models.model import Model
from sim.proposers.base import Proposer
from sim.spec import Family, Spec


class DraftWork(NamedTuple):
    """What a drafter is asked to do at the end of one engine step.

    Attributes:
        target: the target's pass of this step. Drafters with KV of their own take in all of its tokens in their first
            pass, prompt chunks included (rejected drafts stay as padding: vLLM `eagle.py`).
        num_seqs: sequences that get new drafts: those that emitted a token in this step and speculate.
        kv_tokens: sum of their context lengths.
        num_draft_tokens: K, drafts per sequence; 0 still runs the first pass of a loaded drafter: its KV stays in step.
    """

    target: ForwardPass
    num_seqs: int
    kv_tokens: int
    num_draft_tokens: int


class Drafter(Protocol):
    """A method bound to a deployment and its cost."""

    def draft_seconds(self, work: DraftWork) -> float:
        """Time of drafting after the target pass; 0 for `plain`."""
        ...


class SpeculationMethod(Spec):
    """`speculative_config` of an arm.

    `bind` needs the deployment because a drafter's passes are priced on the same GPUs.
    """

    #: Whether drafts are drawn from a distribution q that a verification rule can look at; look-ups have none.
    drafts_have_probabilities: ClassVar[bool] = True
    #: Drafts are made on the CPU, so the next step cannot be scheduled before this one is done.
    drafts_on_cpu: ClassVar[bool] = False
    #: How many drafts a step finds depends on the text, so that closed forms do not hold.
    draft_count_varies: ClassVar[bool] = False
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
    def max_accepted_tokens(self) -> int:
        """The most drafts one step can accept: `max_draft_tokens` for chains, the depth for trees."""
        return self.max_draft_tokens

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
        """The rule that picks K for the next step."""
        raise NotImplementedError

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

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """Price this drafter on the deployment."""
        raise NotImplementedError


SPECULATION: Family[SpeculationMethod] = Family("speculation", "sim.speculation", tag="method")
