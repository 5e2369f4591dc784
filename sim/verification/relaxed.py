"""`relaxed`: TensorRT-LLM's relaxed acceptance for the thinking phase of reasoning models. Lossy."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field

from sim.verification.base import VERIFICATION, Floats, TokenRule
from sim.verification.chain import argmax_one_hot


@VERIFICATION.register
class Relaxed(TokenRule):
    """A greedy draft is accepted iff it is in the target's top `relaxed_topk` and within `relaxed_delta` of the first.

    p(x) >= p(top) - relaxed_delta, probabilities after softmax. Otherwise the argmax is written, so that at
    relaxed_delta 0 or relaxed_topk 1 it would be `greedy_match`. TensorRT-LLM relaxes only while the model thinks and
    is strict elsewhere; here every position is relaxed. The defaults, 10 and 0.6, are those of NVIDIA's DeepSeek-R1
    guides (examples with `use_relaxed_acceptance_for_thinking`); the engine's own, 1 and 0 (`llm_args.py`,
    MTPDecodingConfig), relax nothing.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "relaxed"}]})

    lossless: ClassVar[bool] = False
    source: ClassVar[str] = "TensorRT-LLM llm_args.py (MTPDecodingConfig), _torch/speculative/mtp.py"

    kind: Literal["relaxed"] = "relaxed"
    relaxed_topk: int = Field(default=10, ge=2, description="candidates of a position")
    relaxed_delta: float = Field(default=0.6, gt=0, le=1, description="allowed gap to the most probable token")

    def reference(self, p: Floats) -> Floats:
        """Greedy decoding: the strict mode."""
        return argmax_one_hot(p)

    def drafted(self, q: Floats) -> Floats:
        """The MTP layer's most probable token."""
        return argmax_one_hot(q)

    def acceptance(self, p: Floats, d: Floats) -> Floats:
        """1 for candidates."""
        order = np.argsort(-p, axis=-1, kind="stable")
        rank = np.argsort(order, axis=-1, kind="stable")
        near = p >= p.max(axis=-1, keepdims=True) - self.relaxed_delta
        return np.where(near & (rank < self.relaxed_topk), 1.0, 0.0)

    def rejected(self, p: Floats, d: Floats) -> Floats:
        """The argmax, whenever the draft is no candidate."""
        return argmax_one_hot(p) * self.failing(p, d)
