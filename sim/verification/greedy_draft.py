"""`greedy_draft`: the drafter proposes its argmax; a q with all mass on one token. vLLM's default."""

from typing import ClassVar, Literal

from pydantic import ConfigDict

from sim.verification.base import VERIFICATION, Floats
from sim.verification.chain import argmax_one_hot
from sim.verification.rejection_sampling import RejectionSampling


@VERIFICATION.register
class GreedyDraft(RejectionSampling):
    """The drafter's argmax x is accepted with p(x); after a rejection p without x is sampled.

    Rejection sampling with a one-hot q, so the drafter's probabilities are not needed. At temperature 0, where p is
    one-hot too, it is `greedy_match`. The default of an arm, as of vLLM (`draft_sample_method: greedy`).
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "greedy_draft"}]})

    source: ClassVar[str] = "vLLM vllm/config/speculative.py (draft_sample_method), v1/sample/rejection_sampler.py"
    needs_draft_probabilities: ClassVar[bool] = False

    kind: Literal["greedy_draft"] = "greedy_draft"  # type: ignore[assignment]

    def drafted(self, q: Floats) -> Floats:
        """The drafter's most probable token."""
        return argmax_one_hot(q)
