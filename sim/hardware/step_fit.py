"""What every section of a profile says of itself, and the section of whole steps."""

from pydantic import Field

from sim.spec import Spec


class Fit(Spec):
    """Parameters with their provenance: where they come from and the mean absolute error in per cent, if known."""

    source: str
    mape_percent: float | None = None


class StepFit(Fit):
    """Whole steps of one engine: time_scale * kernels + per_step + per_row * rows through the LM head.

    Attributes:
        time_scale: of all kernels, the drafter's included.
        per_step_us: fixed time of a target pass.
        per_row_us: per row through LM head and sampler: one per plain sequence, 1 + drafts per verified one.
        kv_reads: how often sequences with several new tokens read their KV, in passes that verify drafts.
    """

    time_scale: float = Field(1.0, gt=0)
    per_step_us: float = Field(0.0, ge=0)
    per_row_us: float = Field(0.0, ge=0)
    kv_reads: float = Field(1.0, ge=1)
