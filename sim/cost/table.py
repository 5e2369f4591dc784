"""`table`: a user's measured step times, interpolated; a fallback model outside of what was measured.

The rules: docs/background/cost-model.md, "A table of measured steps".
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field

from sim.cost.base import (
    COST_MODELS,
    NO_COST,
    BoundCost,
    CostModel,
    EngineError,
    ForwardPass,
    Host,
    HostOverhead,
    PassCost,
    PassPrice,
)
from sim.cost.constant import Constant
from sim.cost.interpolate import Curve, Place, StepGrid, context_scale
from sim.cost.linear import Linear
from sim.cost.passes import verify_pass
from sim.cost.roofline import Naive, Roofline
from sim.cost.step_times import StepTime, check_units, read_step_times
from sim.deployment import Deployment
from sim.errors import InvariantError

#: A measured time that differs from the fallback's by more than this factor is taken for a wrong unit.
UNIT_FACTOR = 50.0
#: Outside the table, the ratio to the fallback is sampled this many times per doubling of the context.
_RATIOS_PER_DOUBLING = 4


class TableCost:
    """Measured times inside the table, the fallback's scaled by the nearest ratio outside. Remembers what repeats.

    Args:
        grid: measured times.
        fallback: prices any pass.
        overhead: what a measured time holds beside the pass that the fallback prices: host or launch.
        drafts: passes of a drafter, which verify nothing.
    """

    __slots__ = ("_curves", "_drafts", "_fallback", "_grid", "_longest", "_overhead", "_ratios")

    def __init__(self, grid: StepGrid, fallback: PassCost, overhead: HostOverhead, drafts: bool) -> None:
        self._grid, self._fallback, self._overhead, self._drafts = grid, fallback, overhead, drafts
        self._longest = float(grid.new_tokens[-1])
        self._curves: dict[tuple[int, int], Curve | None] = {}
        self._ratios: dict[tuple[float, float], tuple[float, Curve]] = {}

    def price(self, forward: ForwardPass) -> PassPrice:
        """Time of the pass; its split into op groups is the fallback's. `extrapolated` outside the table."""
        seqs, tokens, _, drafts, decode, extend = forward
        base = self._fallback.price(forward)
        if not tokens:
            return base
        whole_s, linear, attention, head, collective, fixed, bound, _ = base
        extra_s = self._overhead.base_s + self._overhead.per_request_s * seqs
        whole_s += extra_s
        cached = decode.kv_tokens_read + extend.kv_tokens_read - tokens
        decodes = tokens <= seqs * self._longest if self._drafts else tokens == seqs + drafts
        curve, outside = self._curve(seqs, tokens) if decodes else None, True
        if curve is not None:
            context = math.log1p(cached / seqs)
            outside = not curve.xs[0] <= context <= curve.xs[-1]
        if curve is None or outside:
            scale = self._ratio(seqs, tokens, cached, decodes)
        elif whole_s:
            scale = math.exp(curve.at(context)) / whole_s
        else:
            measured = math.exp(curve.at(context))
            return PassPrice(measured, 0.0, 0.0, 0.0, 0.0, measured, bound)
        return PassPrice(
            whole_s * scale, linear * scale, attention * scale, head * scale, collective * scale,
            (fixed + extra_s) * scale, bound, outside,
        )  # fmt: skip

    def seconds_by_fallback(self, step: StepTime) -> float:
        """What the fallback says of a measured step."""
        return self._fallback_s(Place(step.num_seqs, step.new_tokens), step.context_tokens)

    def _curve(self, seqs: int, tokens: int) -> Curve | None:
        key = (seqs, tokens)
        if key not in self._curves:
            self._curves[key] = self._grid.over_context(Place(seqs, tokens / seqs))
        return self._curves[key]

    def _ratio(self, seqs: int, tokens: int, cached: int, decodes: bool) -> float:
        """Measured / fallback at the nearest measured place.

        A step with prefill is compared with the measured step that has as many new tokens and as much KV in total:
        that is what decides its time.
        """
        wanted = (seqs, tokens / seqs) if decodes else (round(tokens / self._longest) or 1, self._longest)
        batch, ratios = self._ratios.get(wanted) or self._remember(Place(*wanted))
        return math.exp(ratios.at(math.log1p(cached / (seqs if decodes else batch))))

    def _remember(self, wanted: Place) -> tuple[float, Curve]:
        """Batch of the nearest measured place, and log of measured / fallback there over the context."""
        place = self._grid.nearest(wanted)
        if place != wanted:
            known = self._ratios.get(place) or self._remember(place)
        else:
            known = place.num_seqs, self._compared(place)
        self._ratios[wanted] = known
        return known

    def _compared(self, place: Place) -> Curve:
        times = self._grid.over_context(place)
        if times is None:
            raise InvariantError(f"no measured time at {place}, which was called measured")
        xs = [times.xs[0]]
        for x in times.xs[1:]:
            pieces, left = math.ceil((x - xs[-1]) / math.log(2.0) * _RATIOS_PER_DOUBLING), xs[-1]
            xs += [left + (x - left) * (i + 1) / pieces for i in range(pieces)]
        contexts = sorted({round(math.expm1(x)) for x in xs})
        fallback = [self._fallback_s(place, context) for context in contexts]
        xs = [context_scale(context) for context in contexts]
        return Curve(xs, [times.at(x) - math.log(s) if s else 0.0 for x, s in zip(xs, fallback, strict=True)])

    def _fallback_s(self, place: Place, context: int) -> float:
        batch, new = round(place.num_seqs), round(place.new_tokens)
        forward = verify_pass(batch, context, new - 1)
        if self._drafts:
            forward = forward._replace(num_logit_rows=batch, num_draft_tokens=0)
        return self._fallback.price(forward).seconds + self._overhead.seconds(batch)


class LaunchedPass:
    """A drafter pass as the fallback has it: its kernels, or its launches where those take longer."""

    __slots__ = ("_base",)

    def __init__(self, base: BoundCost) -> None:
        self._base = base

    def price(self, forward: ForwardPass) -> PassPrice:
        """Time of the pass; waiting for launches counts as `fixed`."""
        price = self._base.draft.price(forward)
        waiting_s = self._base.draft_launch_s - price.seconds if forward.num_tokens else 0.0
        if waiting_s <= 0.0:
            return price
        return price._replace(seconds=price.seconds + waiting_s, fixed=price.fixed + waiting_s)


Fallback = Annotated[Roofline | Naive | Linear | Constant, Field(discriminator="kind")]


@COST_MODELS.register
class Table(CostModel):
    """Step times that you measured on your own server: `{kind: table, path: steps.csv}`.

    Columns: `num_seqs`, `new_tokens_per_seq` (1 = plain decode, 1 + K = verification of K drafts), `context_tokens`
    (cached per sequence), `time_us` (or `time_ms`, `time_s`) of the whole step without drafting, and optionally `kind`:
    `target`, or `draft` for one pass of the drafter's network. Times between the measured ones are interpolated on
    logarithmic scales. Other steps, and all with prefill, are priced by `fallback`, scaled to the nearest measured one;
    results say how many those were.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "table", "path": "steps.csv"}]})

    kind: Literal["table"] = "table"
    path: str = Field(description="CSV file of measured steps")
    fallback: Fallback = Field(default=Roofline(), description="prices what was not measured")
    host: Host = Field(
        default=Host(), description="CPU time on top of the measured times; none, since a whole step contains it"
    )
    relative_error: float = Field(default=0.05, ge=0, lt=1, description="one-sigma error of the measured times")

    def located(self, base_dir: Path) -> Self:
        """With `path` made absolute, relative to the scenario's folder."""
        return self.model_copy(update={"path": str((base_dir / self.path).resolve())})

    def bind(self, deployment: Deployment) -> BoundCost:
        """Price passes of this deployment's target and drafter; without draft rows the fallback prices the drafter.

        Raises:
            ScenarioError: the file cannot be used, or its times cannot be those of this deployment.
        """
        times, base = read_step_times(Path(self.path)), self._bound_fallback(deployment)
        target: PassCost = self._checked(times.target, base.target, base.host, drafts=False)
        drafter, measured = deployment.drafter is not None, bool(times.draft)
        draft, launch_s, intake = (base.draft if drafter else target), base.draft_launch_s, base.intake
        if drafter and measured:
            draft = self._checked(times.draft, LaunchedPass(base), HostOverhead(0.0, 0.0), drafts=True)
            launch_s, intake = 0.0, NO_COST
        profile = f"table+{base.profile}"
        bound = replace(
            base, target=target, draft=draft, host=self.host.bind(), draft_launch_s=launch_s, profile=profile,
            intake=intake,
        )  # fmt: skip
        if (drafter and not measured) or all(step.new_tokens == 1 for step in times.target):
            return replace(bound, relative_error=max(self.relative_error, base.relative_error))
        return replace(
            bound, relative_error=self.relative_error, engine_error=EngineError(), caveats=(), checked_batch=None,
            checked_context_tokens=None,
        )  # fmt: skip

    def _bound_fallback(self, deployment: Deployment) -> BoundCost:
        """Kernels, which the measured steps scale; a least time for launches would be scaled with them."""
        fallback = self.fallback
        return fallback.bind_kernels(deployment) if isinstance(fallback, Roofline) else fallback.bind(deployment)

    def _checked(
        self, steps: tuple[StepTime, ...], fallback: PassCost, overhead: HostOverhead, *, drafts: bool
    ) -> TableCost:
        cost = TableCost(StepGrid(steps), fallback, overhead, drafts)
        check_units(Path(self.path), steps, cost.seconds_by_fallback, UNIT_FACTOR)
        return cost
