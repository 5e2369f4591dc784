"""`exact_match`: the target samples its own token; a draft is kept iff it is the same."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from sim.verification.base import VERIFICATION, Floats, Ints, TokenRule
from sim.verification.chain import normalised


@VERIFICATION.register
class ExactMatch(TokenRule):
    """A sampled draft is accepted iff the target's own sample is the same token, which is written in any case.

    Accepts sum p q, never more than `rejection_sampling`. The `strict` of vLLM's second model runner, its default until
    April 2026. llama.cpp and TensorRT-LLM compare samples too, with greedy drafts: then it is `greedy_draft`.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "exact_match"}]})

    lossless: ClassVar[bool] = True
    source: ClassVar[str] = (
        "vLLM rejection_sample_method: strict (pull requests 36930, 40651); llama.cpp common/sampling.cpp"
    )

    kind: Literal["exact_match"] = "exact_match"

    def acceptance(self, p: Floats, d: Floats) -> Floats:
        """p(x): the chance that the target draws the same."""
        return p

    def rejected(self, p: Floats, d: Floats) -> Floats:
        """The target's sample, where another token was drafted."""
        return p * (1.0 - d)

    def recovered(self, p: Floats, d: Floats, draft: Ints) -> Floats:
        """The target's sample given that it is not the draft."""
        others = np.array(p)
        others[np.arange(len(draft)), draft] = 0.0
        return normalised(others, p)
