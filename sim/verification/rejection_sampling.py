"""`rejection_sampling`: accept with min(1, p/q), recover from the normalised max(p - q, 0)."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from sim.verification.base import VERIFICATION, Floats, TokenRule


@VERIFICATION.register
class RejectionSampling(TokenRule):
    """A sampled draft x is accepted with min(1, p(x) / q(x)); after a rejection the residual is sampled.

    Accepts sum min(p, q) = 1 - TV(p, q): no rule that judges one token at a time accepts more without a loss. vLLM does
    this with `draft_sample_method: probabilistic`.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "rejection_sampling"}]})

    lossless: ClassVar[bool] = True
    source: ClassVar[str] = "Leviathan et al., arXiv 2211.17192, Algorithm 1; Chen et al., arXiv 2302.01318"
    needs_draft_probabilities: ClassVar[bool] = True

    kind: Literal["rejection_sampling"] = "rejection_sampling"

    def acceptance(self, p: Floats, d: Floats) -> Floats:
        """min(1, p / q)."""
        return np.minimum(np.divide(p, d, out=np.ones_like(d), where=d > 0), 1.0)

    def rejected(self, p: Floats, d: Floats) -> Floats:
        """max(p - q, 0): its sum is the probability of a rejection."""
        return np.maximum(p - d, 0.0)
