"""What `engine.preset` fills in where a scenario says nothing. Works on data before validation.

Limits that depend on the GPU, the model or the arm stay null: `EngineArgs.resolved`. Where the sweep varies the preset
everything does, and each operating point is filled in by itself. What cannot be read is left for validation.
"""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import ValidationError

from sim.draft_length.base import DRAFT_LENGTH
from sim.draft_length.confidence import ConfidenceDraftLength
from sim.scenario.presets import EnginePreset, PresetId, find_preset
from sim.speculation.base import SPECULATION, SpeculationMethod

PRESET_KEY = "engine.preset"
#: Keys that say what is drafted; with one of them a method is left as it is.
_DRAFTS = ("num_speculative_tokens", "tree", "num_speculative_tokens_per_batch_size")


def fill_preset(full: dict[str, Any]) -> None:
    """Fill in the arms, `engine` and `cost_model.engine`, in place."""
    engine, sweep = full.get("engine", {}), full.get("sweep")
    if not isinstance(engine, Mapping) or _varies_preset(sweep):
        return
    name = engine.get("preset", "vllm")
    if name not in get_args(PresetId):
        return
    preset = find_preset(name)
    _fill_cost(full, preset)
    arms = full.get("arms")
    if isinstance(arms, Mapping):
        arms = full["arms"] = {name: _arm(arm, preset, _target(full)) for name, arm in arms.items()}
    switches = {key: setting.value for key, setting in preset.switches.items()}
    if switches["async_scheduling"]:
        switches["async_scheduling"] = all(map(_overlaps, arms.values() if isinstance(arms, Mapping) else ()))
    full["engine"] = {**engine, **{key: value for key, value in switches.items() if engine.get(key) is None}}


def _varies_preset(sweep: Any) -> bool:
    vary = sweep.get("vary") if isinstance(sweep, Mapping) else None
    return isinstance(vary, Mapping) and PRESET_KEY in vary


def _target(full: Mapping[str, Any]) -> str:
    """The target's name, or "" where it cannot be told."""
    model = full.get("model")
    target = model.get("target") if isinstance(model, Mapping) else None
    return str(target.get("name", "")) if isinstance(target, Mapping) else str(target or "")


def _fill_cost(full: dict[str, Any], preset: EnginePreset) -> None:
    cost = full.get("cost_model")
    if isinstance(cost, Mapping) and cost.get("kind") == "roofline" and cost.get("engine") is None:
        full["cost_model"] = {**cost, "engine": preset.cost_engine.value}


def _arm(arm: Any, preset: EnginePreset, target: str) -> Any:
    """The arm with what the preset drafts, how it verifies, and its K rule."""
    config = arm.get("speculative_config") if isinstance(arm, Mapping) else None
    if not isinstance(config, Mapping):
        return arm
    if not any(config.get(key) is not None for key in _DRAFTS):
        arm = {**arm, "speculative_config": {**preset.drafts_of(str(config.get("method")), target), **config}}
    method = _method(arm)
    if method is None or not method.max_draft_tokens:
        return arm
    rules = {"verification": preset.verification.value, "draft_length": preset.draft_length.value}
    shipped = method.facts is not None and preset.engine in method.facts.engines
    suits = {"verification": method.drafts_have_probabilities, "draft_length": shipped and _can_be_unsure(method)}
    wanted = {key: rule for key, rule in rules.items() if suits[key] and rule not in _UNSAID}
    return {**arm, **{key: rule for key, rule in wanted.items() if arm.get(key) is None}}


#: Rules that an arm has anyway when it names none.
_UNSAID: tuple[Any, ...] = ({"kind": "greedy_draft"}, {"kind": "fixed"})


def _method(arm: Mapping[str, Any]) -> SpeculationMethod | None:
    """The arm's method; None for one that cannot be read."""
    config = arm["speculative_config"]
    spec = SPECULATION.members().get(str(config.get("method")))
    try:
        return None if spec is None else spec.model_validate(config)
    except ValidationError:
        return None


def _can_be_unsure(method: SpeculationMethod) -> bool:
    """Whether drafting may end where the drafter is unsure: a chain of drafts with probabilities, and no K rule yet."""
    chain = method.max_accepted_tokens == method.max_draft_tokens
    return chain and method.drafts_have_probabilities and method.draft_length.kind == "fixed"


def _overlaps(arm: Any) -> bool:
    """Whether the next step of an arm can be scheduled before this one is over."""
    if not isinstance(arm, Mapping) or not isinstance(arm.get("speculative_config"), Mapping):
        return True
    method, rule = _method(arm), arm.get("draft_length")
    if method is None:
        return True
    kind = DRAFT_LENGTH.members().get(str(rule.get("kind"))) if isinstance(rule, Mapping) else None
    looks = kind is not None and issubclass(kind, ConfidenceDraftLength)
    return not (method.drafts_on_cpu or method.tree_shape is not None or method.method == "medusa" or looks)
