"""`tree:` of a speculation method: the shape of its token trees. K, the drafts verified, are nodes without the root."""

from functools import lru_cache
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from sim.spec import Seq, Spec
from sim.speculation.known_trees import TreeName, known_tree
from sim.theory.draft_trees import DraftTree, FixedShape, GrownShape, TreeShape, best_tree, tree_of_widths
from sim.units import Microseconds, PositiveCount, Probability


class TreeSpec(Spec):
    """One way to say what the trees look like."""

    @property
    def level_s(self) -> float:
        """What the drafter takes for a level on top of its pass."""
        return 0.0

    def shape(self, num_draft_tokens: int) -> TreeShape:
        """The shape when this many nodes are verified."""
        raise NotImplementedError

    def check_size(self, num_draft_tokens: int) -> None:
        """Raise ValueError when the tree cannot have this many nodes."""
        raise NotImplementedError


class StaticTree(TreeSpec):
    """A tree written out: its size is what it is."""

    def tree(self) -> DraftTree:
        """The whole tree."""
        raise NotImplementedError

    def shape(self, num_draft_tokens: int) -> TreeShape:
        """The first nodes of the tree."""
        return FixedShape(self.tree().first(num_draft_tokens))

    def check_size(self, num_draft_tokens: int) -> None:
        """The number of drafts is the number of nodes."""
        if num_draft_tokens != (nodes := len(self.tree().nodes)):
            raise ValueError(f"num_speculative_tokens: found {num_draft_tokens}; this tree has {nodes} nodes")


class NodesTree(StaticTree):
    """Every node by the ranks on its path from the root, parents first, as `medusa_choices` and vLLM's token tree."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "nodes", "nodes": [[0], [1], [0, 0]]}]})

    kind: Literal["nodes"] = "nodes"
    nodes: Seq[Seq[Annotated[int, Field(ge=0, le=63)]]] = Field(
        min_length=1, max_length=64, description="the nodes; a smaller tree is the beginning of the list"
    )

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        self.tree()
        return self

    def tree(self) -> DraftTree:
        """The nodes as written."""
        return DraftTree(self.nodes)


class NamedTree(StaticTree):
    """A published tree."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "named", "name": "medusa_7b_63"}]})

    kind: Literal["named"] = "named"
    name: TreeName = Field(
        description="`medusa_7b_63`: Medusa's `mc_sim_7b_63`, 63 nodes, depth 4; `eagle_25`: EAGLE-1's, depth 5"
    )

    def tree(self) -> DraftTree:
        """The tree of that name."""
        return known_tree(self.name)


class WidthsTree(StaticTree):
    """Every node at one depth has the same number of children (SpecInfer's expansion configuration)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "widths", "widths": [4, 2, 1]}]})

    kind: Literal["widths"] = "widths"
    widths: Seq[PositiveCount] = Field(
        min_length=1, max_length=64, description="children of the root, of each node at depth 1, 2, ..."
    )

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        self.tree()
        return self

    def tree(self) -> DraftTree:
        """By depth."""
        return tree_of_widths(self.widths)


class OptimalTree(TreeSpec):
    """The tree that emits most if the target takes the drafter's guesses as often as `rates` say (Sequoia).

    Any number of nodes; a smaller tree is the best one of its size. `rates` are what the tree was made for; what is
    accepted is the arm's `acceptance`, which may differ.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "optimal", "rates": [0.7, 0.12, 0.05, 0.03], "depth": 6}]}
    )

    kind: Literal["optimal"] = "optimal"
    rates: Seq[Probability] = Field(
        min_length=1, max_length=64, description="how often the best, second best, ... guess is taken, falling"
    )
    depth: PositiveCount = Field(le=64, description="the deepest the tree may get: the most passes of the drafter")

    @model_validator(mode="after")
    def _falling(self) -> Self:
        if list(self.rates) != sorted(self.rates, reverse=True) or sum(self.rates) > 1 + 1e-9:
            raise ValueError("rates must fall with the rank, and be 1 in all at most")
        return self

    def shape(self, num_draft_tokens: int) -> TreeShape:
        """The largest path products."""
        return FixedShape(best_tree(np.tile(np.array(self.rates), (self.depth, 1)), num_draft_tokens))

    def check_size(self, num_draft_tokens: int) -> None:
        """Depth and ranks must hold that many nodes."""
        self.shape(num_draft_tokens)


class DynamicTree(TreeSpec):
    """EAGLE-2's: grown every step where the drafter is confident, then the most promising nodes are verified.

    SGLang's `speculative_num_steps` and `speculative_eagle_topk` are `depth` and `top_k`, and its
    `speculative_num_draft_tokens`, like `total_token` of the EAGLE repository, counts the root: K is one less. The
    repository's own `depth` counts the passes after the first: its 60 / 7 / 10 is K = 59, depth 8, top_k 10. Which
    nodes that are follows from the arm's acceptance (`per_rank` and its `confidence_spread`).
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "dynamic", "depth": 8, "top_k": 10}]})

    kind: Literal["dynamic"] = "dynamic"
    depth: PositiveCount = Field(le=64, description="levels of the tree: passes of the drafter")
    top_k: PositiveCount = Field(le=64, description="nodes expanded per level, and children of each")
    level_us: Microseconds = Field(
        default=140.0,
        description="choosing the nodes of a level, on top of the pass. SGLang at batch 1: steps with trees of 5 and 7 "
        "levels took 0.14 and 0.17 plain steps of 5.4 ms longer than chains as deep (SpecForge dashboard, H200)",
    )

    @property
    def level_s(self) -> float:
        """Choosing the nodes of a level."""
        return self.level_us * 1e-6

    def shape(self, num_draft_tokens: int) -> GrownShape:
        """Grown at every step."""
        return GrownShape(num_draft_tokens, self.depth, self.top_k)

    def check_size(self, num_draft_tokens: int) -> None:
        """At least one node per level, and no more than the drafter sees."""
        seen = self.shape(num_draft_tokens).num_seen
        if not self.depth <= num_draft_tokens <= seen:
            raise ValueError(
                f"num_speculative_tokens: found {num_draft_tokens}; depth {self.depth} and top_k {self.top_k} allow "
                f"{self.depth} to {seen}"
            )


@lru_cache(maxsize=512)
def tree_shape(tree: TreeSpec, num_draft_tokens: int) -> TreeShape:
    """`tree.shape`, remembered."""
    return tree.shape(num_draft_tokens)


Tree = Annotated[NodesTree | NamedTree | WidthsTree | OptimalTree | DynamicTree, Field(discriminator="kind")]
