"""`linear`: seconds = base + per token + per KV token, the form of SpecDecode-Bench (arXiv 2601.11580)."""

from typing import Literal

from pydantic import ConfigDict

from sim.cost.base import COST_MODELS, BoundCost, CostModel, ForwardPass, Host, PassPrice
from sim.deployment import Deployment
from sim.errors import ScenarioError
from sim.spec import Spec
from sim.units import Microseconds, Milliseconds, Nanoseconds

#: A line holds for the engine, GPU and range it was fitted on, which is not known here.
_RELATIVE_ERROR = 0.25


class LinearCost:
    """A line: `base_s` if there is any token, plus a slope per new token and per KV token read."""

    __slots__ = ("base_s", "kv_token_s", "token_s")

    def __init__(self, base_s: float, token_s: float, kv_token_s: float) -> None:
        self.base_s, self.token_s, self.kv_token_s = base_s, token_s, kv_token_s

    def price(self, forward: ForwardPass) -> PassPrice:
        """Base and tokens are `linear`, KV tokens are `attention`; compute-bound where tokens cost most."""
        tokens = forward.num_tokens
        if not tokens:
            return PassPrice(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, True)
        per_tokens = tokens * self.token_s
        attention = (forward.decode.kv_tokens_read + forward.extend.kv_tokens_read) * self.kv_token_s
        linear = self.base_s + per_tokens
        return PassPrice(linear + attention, linear, attention, 0.0, 0.0, 0.0, self.base_s + attention >= per_tokens)


class Line(Spec):
    """Coefficients of one pass."""

    base_ms: Milliseconds
    per_token_us: Microseconds = 0.0
    per_kv_token_ns: Nanoseconds = 0.0

    def bind(self) -> LinearCost:
        """The same in seconds."""
        return LinearCost(self.base_ms * 1e-3, self.per_token_us * 1e-6, self.per_kv_token_ns * 1e-9)


@COST_MODELS.register
class Linear(CostModel):
    """A fitted line for the target, and one for each pass of the drafter's network.

    The example is Llama-3.1-8B on one H100 in vLLM 0.10 (SpecDecode-Bench); its `draft` only shows the spelling. Tokens
    cost the same from the first one on, so this form charges small verify batches too much.

    Attributes:
        draft: needed when the speculation method has a network; launch costs belong into its `base_ms`.
        host: CPU time per step; none by default.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "linear",
                    "base_ms": 5.886,
                    "per_token_us": 21.0,
                    "per_kv_token_ns": 39.3,
                    "host": {"base_ms": 1.207},
                    "draft": {"base_ms": 0.7},
                },
            ]
        }
    )

    kind: Literal["linear"] = "linear"
    base_ms: Milliseconds
    per_token_us: Microseconds = 0.0
    per_kv_token_ns: Nanoseconds = 0.0
    draft: Line | None = None
    host: Host = Host()

    def bind(self, deployment: Deployment) -> BoundCost:
        """Price passes by the coefficients alone; the shapes of the models do not matter.

        Raises:
            ScenarioError: there is a drafter network and `draft` is missing.
        """
        target = LinearCost(self.base_ms * 1e-3, self.per_token_us * 1e-6, self.per_kv_token_ns * 1e-9)
        return BoundCost(
            target=target,
            draft=_draft_cost(self.draft, deployment) or target,
            host=self.host.bind(),
            draft_launch_s=0.0,
            profile="linear",
            relative_error=_RELATIVE_ERROR,
        )


def _draft_cost(draft: Line | None, deployment: Deployment) -> LinearCost | None:
    if draft is not None:
        return draft.bind()
    if deployment.drafter is None:
        return None
    raise ScenarioError(
        f"cost_model.draft: the drafter {deployment.drafter.name!r} runs on the GPU, so a linear cost model needs the "
        "cost of one of its passes: draft: {base_ms: ..., per_token_us: ..., per_kv_token_ns: ...}"
    )
