"""What a serving engine adds to the kernels of a step, apart from the GPU. Data: `sim/hardware/data/engines/*.yaml`.

The same for every GPU and model. Every value carries its one-sigma error and where it comes from; how they were found:
docs/background/cost-model.md, "Engines".
"""

from pathlib import Path

from pydantic import Field

from sim.catalogue import Catalogue
from sim.spec import Seq, Spec


class Measured(Spec):
    """A value, its one-sigma error in the same unit, and where both come from."""

    value: float = Field(ge=0)
    error: float = Field(ge=0)
    source: str


class EngineProfile(Spec):
    """One file of `data/engines`; `id` is its stem.

    Attributes:
        versions: the releases that the values speak for.
        host_base_ms, host_per_request_ms: CPU time that sticks out of the GPU time, per step and per sequence in it.
        host_is_remainder: True when the engine schedules beside the GPU, so that the host time above is what is left
            over; asynchronous scheduling then hides none of it a second time.
        draft_pass_ms: launching one drafter pass. Launches run ahead of the GPU: a pass takes the longer of this and
            its kernels.
        speculative_step_ms: more in a step that verifies drafts, whatever their number.
        per_row_us: each row through LM head and sampler, on top of its kernels: one per plain sequence, 1 + drafts per
            verified one (float32 logits, rejection sampling, ragged metadata, detokenising).
        per_draft_token_us: each draft token verified, on top of its row; none: nothing.
        kv_reads: how often attention reads the KV of a sequence with several new tokens; decode reads it once.
        time_scale: kernels of this engine in units of those that the GPU profiles were fitted on.
        launch_overlap: share of the fixed times of kernels that the engine hides, by starting a kernel before the last
            one is done (programmatic dependent launch) and by fusing.
        eager_layer_ms: launching the kernels of one layer from the CPU, in passes that no CUDA graph covers; the pass
            takes at least that for all layers.
        eager_triton_ms: the same for the experts of a layer where they are Triton kernels, on top.
        graphs_hold_prompts: CUDA graphs are captured for batches with prompts too, up to `max_cudagraph_capture_size`
            tokens (vLLM's piecewise graphs); False: every pass with a prompt is launched kernel by kernel.
        replicates_lm_head: under tensor parallelism every GPU computes all logits from the whole LM head, and nothing
            is gathered; False: each GPU has its share of the vocabulary. Memory counts a share either way.
        expands_drafts: every draft is verified as a sequence of its own with one new token, which reads all KV before
            it (batch expansion, vLLM V0 `spec_decode/batch_expansion.py`).
        checked_batch, checked_context_tokens: up to where speculative steps were compared with measurements; 0: never.
        caveats: what a reader of results has to know about this profile; none when it was checked against servers.
    """

    id: str
    versions: str
    host_base_ms: Measured
    host_per_request_ms: Measured
    host_is_remainder: bool
    draft_pass_ms: Measured
    speculative_step_ms: Measured
    per_row_us: Measured
    per_draft_token_us: Measured | None = None
    kv_reads: Measured
    time_scale: Measured
    launch_overlap: Measured
    eager_layer_ms: Measured
    eager_triton_ms: Measured
    graphs_hold_prompts: bool
    replicates_lm_head: bool = False
    expands_drafts: bool = False
    checked_batch: int = Field(ge=0)
    checked_context_tokens: int = Field(ge=0)
    caveats: Seq[str] = ()


_ENGINES = Catalogue("engine", Path(__file__).parent / "data" / "engines", EngineProfile)


def engine_ids() -> tuple[str, ...]:
    """Ids of all shipped engine profiles, sorted."""
    return _ENGINES.ids()


def find_engine(name: str) -> EngineProfile:
    """The engine profile that `name` means; see `Catalogue.find` for what may be left out.

    Raises:
        ScenarioError: unknown or ambiguous; the message names the candidates.
    """
    return _ENGINES.find(name)
