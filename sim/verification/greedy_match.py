"""`greedy_match`: decoding at temperature 0; a draft is kept iff it is the target's argmax."""

from typing import ClassVar, Literal

from pydantic import ConfigDict

from sim.verification.base import VERIFICATION, Floats, TokenRule
from sim.verification.chain import argmax_one_hot


@VERIFICATION.register
class GreedyMatch(TokenRule):
    """A greedy draft is accepted iff it is the target's most probable token, which is written otherwise.

    Lossless for greedy decoding: the output is the target's greedy text, not a sample of p.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "greedy_match"}]})

    lossless: ClassVar[bool] = True
    source: ClassVar[str] = "Stern et al., arXiv 1811.03115; vLLM v1/sample/rejection_sampler.py (all greedy)"

    kind: Literal["greedy_match"] = "greedy_match"

    def reference(self, p: Floats) -> Floats:
        """Greedy decoding: the argmax."""
        return argmax_one_hot(p)

    def drafted(self, q: Floats) -> Floats:
        """The drafter's most probable token."""
        return argmax_one_hot(q)

    def acceptance(self, p: Floats, d: Floats) -> Floats:
        """1 for the target's argmax."""
        return argmax_one_hot(p)

    def rejected(self, p: Floats, d: Floats) -> Floats:
        """The argmax, whenever something else was drafted."""
        return argmax_one_hot(p) * self.failing(p, d)
