"""`engine.preset`: what an engine does when nobody tells it otherwise. Data: `sim/scenario/data/presets/*.yaml`.

"-like", not equal: every value has its source, and each preset says what of its engine is not modelled here.
docs/reference/engines.md is written from the data.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue

from sim.catalogue import Catalogue
from sim.hardware.gpu import Gpu
from sim.spec import Seq, Spec
from sim.units import PositiveCount

PresetId = Literal["vllm", "sglang", "trtllm", "hf", "llamacpp"]


class Setting(Spec):
    """A default and where it comes from."""

    value: JsonValue
    source: str


class Limit(Spec):
    """A default limit, and the memory (GiB) that a GPU must have less of for it to hold; null: every other GPU."""

    value: PositiveCount
    source: str
    below_gib: float | None = Field(None, gt=0)


class DraftDefault(Spec):
    """What is drafted where a scenario names a method and nothing else.

    Attributes:
        methods: of `speculative_config`.
        models: words of which the target's name holds one; empty: any target.
        config: keys of `speculative_config`.
    """

    methods: Seq[str]
    models: Seq[str] = ()
    config: dict[str, JsonValue]
    source: str


class EnginePreset(Spec):
    """One file of `data/presets`; `id` is its stem.

    Attributes:
        engine: name, as in the `engines` of the methods' facts.
        version: ours, counted up whenever a value changes.
        release: what the sources speak of.
        switches: defaults of the fields of `engine:` that are the same for every GPU, model and arm.
        max_num_seqs, max_num_seqs_speculating: limits, of arms that speculate where that is another one; null: vLLM's.
        max_num_batched_tokens: the first that holds for the GPU; none: vLLM's.
        cost_engine: default of `cost_model.engine`.
        verification: the rule of arms that speculate.
        draft_length: their K rule, for methods that the engine has; one that reads the drafter's probabilities only
            for chains of methods that have them.
        drafts: the first that holds for the method and target.
        left_out: what the engine does and this preset does not.
    """

    id: str
    engine: str
    version: PositiveCount
    release: str
    switches: dict[str, Setting]
    max_num_seqs: Limit | None = None
    max_num_seqs_speculating: Limit | None = None
    max_num_batched_tokens: Seq[Limit] = ()
    cost_engine: Setting
    verification: Setting
    draft_length: Setting
    drafts: Seq[DraftDefault] = ()
    left_out: Seq[str] = ()

    @property
    def label(self) -> str:
        """How it is called wherever it is shown, such as `SGLang-like`."""
        return f"{self.engine}-like"

    @property
    def title(self) -> str:
        """Label and version."""
        return f"{self.label} (preset version {self.version})"

    def seqs(self, speculates: bool) -> int | None:
        """Default of `max_num_seqs`; None: vLLM's rule."""
        limit = (self.max_num_seqs_speculating if speculates else None) or self.max_num_seqs
        return None if limit is None else limit.value

    def batched_tokens(self, gpu: Gpu) -> int | None:
        """Default of `max_num_batched_tokens`; None: vLLM's rule."""
        memory = gpu.memory / 2**30
        holds = (limit for limit in self.max_num_batched_tokens if limit.below_gib is None or memory < limit.below_gib)
        return next((limit.value for limit in holds), None)

    def drafts_of(self, method: str, target: str) -> dict[str, Any]:
        """Keys of `speculative_config` for a method and the name of a target; empty when the preset says nothing."""
        fits = (
            drafts.config
            for drafts in self.drafts
            if method in drafts.methods and (not drafts.models or any(word in target.lower() for word in drafts.models))
        )
        return dict(next(fits, {}))


_PRESETS = Catalogue("engine preset", Path(__file__).parent / "data" / "presets", EnginePreset)


def preset_ids() -> tuple[str, ...]:
    """Ids of all presets, sorted."""
    return _PRESETS.ids()


def find_preset(name: str) -> EnginePreset:
    """The preset of exactly this id."""
    return _PRESETS.load(name)
