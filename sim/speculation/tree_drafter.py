"""What drafting a token tree costs: a pass per level, and moving the KV of the accepted path together."""

from dataclasses import dataclass, field
from itertools import groupby

from sim.cost.base import NO_ATTENTION, AttentionLoad, BoundCost, ForwardPass
from sim.deployment import Deployment
from sim.speculation.base import DraftWork
from sim.speculation.drafters import catch_up_seconds, following_pass
from sim.theory.draft_trees import TreeShape


@dataclass(frozen=True, slots=True)
class KvCompaction:
    """Copying the KV of the accepted path behind the context, in all layers of target and drafter.

    Attributes:
        seconds_per_token: reading and writing one token's KV.
    """

    seconds_per_token: float

    @classmethod
    def of(cls, deployment: Deployment) -> "KvCompaction":
        """At the memory bandwidth of the GPU."""
        both_ways = 2.0 * deployment.memory.kv_bytes_per_token
        return cls(both_ways / deployment.gpu.memory_bandwidth)

    def seconds(self, shape: TreeShape, num_draft_tokens: int) -> float:
        """Time for a pass that verified this many nodes, as if every path were accepted to the end: an upper bound."""
        return self.seconds_per_token * path_tokens(shape, num_draft_tokens)


def path_tokens(shape: TreeShape, num_draft_tokens: int) -> int:
    """The most drafts that a pass with this many nodes in it can accept, all its sequences together."""
    return -(-num_draft_tokens * shape.depth // shape.num_nodes)


@dataclass(frozen=True, slots=True)
class TreeDrafter:
    """One pass over what was accepted, then one per further level of the tree (EAGLE `topK_genrate`, SGLang).

    The first pass takes in prompt chunks and, for every sequence that verified a tree, the root and a path as long as
    the tree is deep (SGLang pads the accepted path to `speculative_num_steps + 1`); it yields level 1 and runs even for
    K = 0. Pass i has the nodes of level i - 1 that are expanded. So a tree of depth d takes d passes, like a chain;
    `level_s` is what choosing the nodes of a level takes beside its pass; `new_slots` as for `AutoregressiveDrafter`.
    """

    cost: BoundCost
    shape: TreeShape
    compaction: KvCompaction
    level_s: float = 0.0
    new_slots: int = 0
    _passes: dict[int, tuple[tuple[int, int, int], ...]] = field(default_factory=dict)

    def draft_seconds(self, work: DraftWork) -> float:
        """Time of all drafter passes of one step, and of compaction; 0 when the target's pass is empty."""
        if not work.target.num_tokens:
            return 0.0
        rows = work.num_seqs if work.num_draft_tokens else 0
        taken_in = self._paths(work.target)
        first = following_pass(work._replace(target=taken_in), self.new_slots, rows)
        seconds = self.cost.draft_pass_seconds(first, taken_in.num_tokens)
        seconds += catch_up_seconds(self.cost, work)
        seconds += self.compaction.seconds(self.shape, work.target.num_draft_tokens)
        if rows:
            seconds += self.shape.depth * self.level_s
            for count, width, before in self._further(work.num_draft_tokens):
                seconds += count * self.cost.draft_pass_seconds(_level(work, width, before))
        return seconds

    def _paths(self, target: ForwardPass) -> ForwardPass:
        """The target's pass with paths in the place of trees."""
        num_seqs, num_tokens, _, drafts, decode, extend = target
        if not drafts:
            return target
        less = drafts - path_tokens(self.shape, drafts)
        tokens, kv = extend.num_tokens - less, extend.kv_tokens_read - less
        pairs = max(extend.pairs - less * extend.kv_tokens_read // extend.num_seqs, tokens)
        return ForwardPass(num_seqs, num_tokens - less, 0, 0, decode, AttentionLoad(extend.num_seqs, tokens, kv, pairs))

    def _further(self, num_draft_tokens: int) -> tuple[tuple[int, int, int], ...]:
        """(passes, tokens per request, tokens of the tree before the middle one) of passes of equal width."""
        known = self._passes.get(num_draft_tokens)
        if known is None:
            found: list[tuple[int, int, int]] = []
            before = 0
            for width, same in groupby(self.shape.pass_widths(num_draft_tokens)):
                count = len(list(same))
                found.append((count, width, before + (count - 1) * width // 2))
                before += count * width
            known = self._passes[num_draft_tokens] = tuple(found)
        return known


def _level(work: DraftWork, width: int, before: int) -> ForwardPass:
    """A pass of `width` nodes per request: each sees the context, its own path and itself; KV is read once."""
    n, tokens = work.num_seqs, work.num_seqs * width
    cached = work.kv_tokens + n * before
    load = AttentionLoad(n, tokens, cached + tokens, width * cached + tokens)
    decode, extend = (load, NO_ATTENTION) if width == 1 else (NO_ATTENTION, load)
    return ForwardPass(n, tokens, tokens, 0, decode, extend)
