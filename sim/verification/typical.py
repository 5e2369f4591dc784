"""`typical`: Medusa's typical acceptance. Lossy: keeps every draft that is probable enough."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field

from sim.verification.base import VERIFICATION, Floats, TokenRule
from sim.verification.chain import argmax_one_hot


@VERIFICATION.register
class Typical(TokenRule):
    """A greedy draft x is accepted iff p(x) > min(threshold, entropy_factor x exp(-H)), H the entropy of p in nats.

    Otherwise, and after the accepted drafts, p's argmax is written, as Medusa's code does. That code calls the two
    `posterior_threshold` and `posterior_alpha`, 0.09 and its root 0.3; the paper calls them epsilon and delta.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "typical"}]})

    lossless: ClassVar[bool] = False
    source: ClassVar[str] = "Cai et al., arXiv 2401.10774, section 2.3.1; Medusa medusa/model/utils.py"

    kind: Literal["typical"] = "typical"
    threshold: float = Field(default=0.09, gt=0, le=1, description="hard threshold, epsilon")
    entropy_factor: float = Field(default=0.3, gt=0, le=1, description="factor of exp(-H), delta")

    def drafted(self, q: Floats) -> Floats:
        """The head's most probable token."""
        return argmax_one_hot(q)

    def bonus(self, p: Floats) -> Floats:
        """The argmax."""
        return argmax_one_hot(p)

    def acceptance(self, p: Floats, d: Floats) -> Floats:
        """1 above the threshold."""
        entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1, keepdims=True)
        return np.where(p > np.minimum(self.threshold, self.entropy_factor * np.exp(-entropy)), 1.0, 0.0)

    def rejected(self, p: Floats, d: Floats) -> Floats:
        """The argmax, whenever the draft fails."""
        return argmax_one_hot(p) * self.failing(p, d)
