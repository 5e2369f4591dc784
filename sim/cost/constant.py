"""`constant`: every pass takes the same time. The textbook server (50 ms, 5 ms) and the queueing oracles."""

from typing import Literal

from pydantic import ConfigDict

from sim.cost.base import COST_MODELS, BoundCost, CostModel, ForwardPass, Host, PassPrice
from sim.deployment import Deployment
from sim.errors import ScenarioError
from sim.units import Milliseconds


class ConstantCost:
    """The same price for every pass with a token in it."""

    __slots__ = ("_nothing", "_price")

    def __init__(self, seconds: float) -> None:
        self._price = PassPrice(seconds, 0.0, 0.0, 0.0, 0.0, seconds, True)
        self._nothing = PassPrice(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, True)

    def price(self, forward: ForwardPass) -> PassPrice:
        """The constant, or nothing for an empty pass."""
        return self._price if forward.num_tokens else self._nothing


@COST_MODELS.register
class Constant(CostModel):
    """Every pass takes the same time: exact by definition, whatever model and GPU.

    Attributes:
        target_ms: one pass of the target, however many tokens it has.
        draft_ms: one pass of the drafter's network; needed when the speculation method has one.
        host: CPU time per step; none by default.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "constant", "target_ms": 50, "draft_ms": 5}]})

    kind: Literal["constant"] = "constant"
    target_ms: Milliseconds
    draft_ms: Milliseconds | None = None
    host: Host = Host()

    def bind(self, deployment: Deployment) -> BoundCost:
        """Constant prices.

        Raises:
            ScenarioError: there is a drafter network and `draft_ms` is missing.
        """
        if self.draft_ms is None and deployment.drafter is not None:
            raise ScenarioError(
                f"cost_model.draft_ms: the drafter {deployment.drafter.name!r} runs on the GPU, so a constant cost "
                "model needs the time of one of its passes; write draft_ms: 0 if it is free"
            )
        return BoundCost(
            target=ConstantCost(self.target_ms * 1e-3),
            draft=ConstantCost((self.draft_ms or 0.0) * 1e-3),
            host=self.host.bind(),
            draft_launch_s=0.0,
            profile="constant",
            relative_error=0.0,
        )
