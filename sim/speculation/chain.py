"""What all methods share: K in vLLM's spelling, trees, and a network that drafts in passes or in one."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from sim.cost.base import BoundCost
from sim.deployment import Deployment
from sim.draft_length.base import DraftLength
from sim.draft_length.batch_table import BatchRanges, BatchTable, check_ranges
from sim.draft_length.fixed import Fixed
from sim.models.model import Model
from sim.speculation.base import Drafter, SpeculationMethod
from sim.speculation.drafters import AutoregressiveDrafter, ParallelDrafter
from sim.speculation.tree_drafter import KvCompaction, TreeDrafter
from sim.speculation.trees import Tree, tree_shape
from sim.theory.draft_trees import TreeShape
from sim.units import PositiveCount


class ChainMethod(SpeculationMethod):
    """A method that drafts up to K tokens per request, one chain of them unless it says otherwise.

    Attributes:
        num_speculative_tokens: the largest K; the bonus token of the target is not one of them.
        num_speculative_tokens_per_batch_size: inclusive [first, last, K] ranges by scheduled requests; gaps and the
            tail inherit (vLLM's key of the same name). K = 0 still runs the first pass of a loaded drafter.
    """

    no_effect_keys: ClassVar[frozenset[str]] = frozenset(
        {"revision", "code_revision", "quantization", "max_model_len", "parallel_drafting", "attention_backend"}
    )

    num_speculative_tokens: Annotated[PositiveCount, Field(le=64)]
    num_speculative_tokens_per_batch_size: BatchRanges | None = None

    @model_validator(mode="after")
    def _check_ranges(self) -> "ChainMethod":
        if self.num_speculative_tokens_per_batch_size is not None:
            check_ranges(self.num_speculative_tokens_per_batch_size, self.num_speculative_tokens)
        return self

    @property
    def max_draft_tokens(self) -> int:
        """The largest K this config can ask for."""
        return self.num_speculative_tokens

    @property
    def lookahead_tokens(self) -> int:
        """KV slots for the next drafts: K for drafters with KV of their own (vLLM `num_lookahead_tokens`)."""
        return self.num_speculative_tokens

    @property
    def draft_length(self) -> DraftLength:
        """The table, or always the largest K."""
        ranges = self.num_speculative_tokens_per_batch_size
        return Fixed() if ranges is None else BatchTable(num_speculative_tokens_per_batch_size=ranges)


class TreeMethod(ChainMethod):
    """A method whose network names several guesses per position, so that it can draft token trees.

    Attributes:
        tree: the shape of the trees; a chain without. K (`num_speculative_tokens` and whatever changes it at run time)
            then counts the nodes verified, root not counted: token budget, KV slots and verification are those of K
            drafts, and what can be accepted is the depth. A smaller K, or a tree cut by the token budget, is its first
            nodes.
    """

    tree: Tree | None = None

    @model_validator(mode="after")
    def _check_tree(self) -> "TreeMethod":
        if self.tree is not None:
            self.tree.check_size(self.num_speculative_tokens)
        return self

    @property
    def tree_shape(self) -> TreeShape | None:
        """The shape of the trees, or None for chains."""
        return None if self.tree is None else tree_shape(self.tree, self.num_speculative_tokens)


class NetworkMethod(ChainMethod):
    """Drafted by a network with weights and KV of its own."""

    draft_tensor_parallel_size: PositiveCount | None = None

    @property
    def drafts_in_parallel(self) -> bool:
        """Whether one pass drafts all tokens."""
        return False

    def num_draft_passes(self, num_draft_tokens: int) -> int:
        """One per depth of the draft, or one in all; K = 0 still takes one, which keeps the drafter's KV in step."""
        shape = self.tree_shape
        if self.drafts_in_parallel or not num_draft_tokens:
            return 1
        levels = num_draft_tokens if shape is None else 1 + len(shape.pass_widths(num_draft_tokens))
        return min(num_draft_tokens, levels)

    def drafter_tensor_parallel_size(self, tensor_parallel_size: int) -> int:
        """`draft_tensor_parallel_size`, which vLLM allows to be 1 or the target's."""
        return self.draft_tensor_parallel_size or tensor_parallel_size

    def drafter_model(self, target: Model, base_dir: Path) -> Model:
        """Shape of the drafting network."""
        raise NotImplementedError


class AutoregressiveMethod(TreeMethod, NetworkMethod):
    """One pass of the network over all that the target just did, then a pass per further depth of the draft.

    Attributes:
        new_slots: see `AutoregressiveDrafter`.
    """

    new_slots: ClassVar[int] = 0

    @property
    def lookahead_tokens(self) -> int:
        """KV slots for the next drafts: K for chains (vLLM); for trees what the drafter's levels need beyond the nodes.

        SGLang holds max(speculative_num_steps x speculative_eagle_topk, speculative_num_draft_tokens) slots per request
        (`ALLOC_LEN_PER_DECODE`); the latter are those of the nodes under verification.
        """
        shape = self.tree_shape
        if shape is None:
            return super().lookahead_tokens
        widest = max(shape.pass_widths(shape.num_nodes), default=1)
        return max(0, shape.depth * widest - (shape.num_nodes + 1))

    def bind(self, deployment: Deployment, cost: BoundCost) -> Drafter:
        """Price the passes on the deployment."""
        if self.tree is not None:
            shape = tree_shape(self.tree, self.num_speculative_tokens)
            return TreeDrafter(cost, shape, KvCompaction.of(deployment), self.tree.level_s, self.new_slots)
        rhythm = ParallelDrafter if self.drafts_in_parallel else AutoregressiveDrafter
        return rhythm(cost, self.new_slots)
