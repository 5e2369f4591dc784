"""What `engine.preset` stands for in a scenario, in words: what it set, what is stated otherwise, what is left out."""

from collections.abc import Iterator

from pydantic import JsonValue

from sim.cost.roofline import Roofline
from sim.scenario.findings import Context, Finding, note, reads
from sim.scenario.preset_defaults import PRESET_KEY
from sim.scenario.presets import EnginePreset, find_preset
from sim.scenario.schema import Scenario
from sim.scenario.suggestions import flow


def preset_names(scenario: Scenario) -> tuple[str, ...]:
    """The preset as it is shown, such as `SGLang-like (preset version 1)`; several where the sweep varies it."""
    names = scenario.sweep.vary.get(PRESET_KEY, (scenario.engine.preset,))
    return tuple(find_preset(str(name)).title for name in names)


def preset_lines(scenario: Scenario) -> tuple[str, ...]:
    """The preset, its defaults that are in force, and what is stated otherwise.

    A value that is stated and the preset's at the same time counts as the preset's.
    """
    if PRESET_KEY in scenario.sweep.vary:
        return (f"engine: {', '.join(preset_names(scenario))}, varied",)
    preset = find_preset(scenario.engine.preset)
    in_force, stated = dict[str, object](), dict[str, object]()
    for key, (default, value) in {**_engine(scenario, preset), **_elsewhere(scenario, preset)}.items():
        (in_force if value == default else stated)[key] = value
    lines = [f"engine: {preset.title}: {flow(in_force)}"]
    if stated:
        lines.append(f"  stated otherwise: {flow(stated)}")
    return tuple(lines)


def _engine(scenario: Scenario, preset: EnginePreset) -> dict[str, tuple[object, object]]:
    """Default and value of the fields of `engine:`; limits as the preset has them while they are not stated."""
    engine = scenario.engine
    switches = {key: (setting.value, getattr(engine, key)) for key, setting in preset.switches.items()}
    seqs = [limit.value for limit in (preset.max_num_seqs, preset.max_num_seqs_speculating) if limit]
    limits: dict[str, tuple[object, object]] = {}
    if seqs or engine.max_num_seqs:
        default: object = " or ".join(map(str, seqs)) + " with speculation" * (len(seqs) > 1)
        limits["max_num_seqs"] = (default, engine.max_num_seqs or default)
    if engine.max_num_batched_tokens:
        limits["max_num_batched_tokens"] = (None, engine.max_num_batched_tokens)
    return {**limits, **switches}


def _elsewhere(scenario: Scenario, preset: EnginePreset) -> dict[str, tuple[object, object]]:
    """The same of the cost profile and of the rules of the arms; an arm's rule that is not the preset's by its name."""
    cost = scenario.cost_model
    found: dict[str, tuple[object, object]] = {}
    if isinstance(cost, Roofline):
        found["cost_model.engine"] = (preset.cost_engine.value, cost.engine)
    speculating = {name: arm for name, arm in scenario.arms.items() if arm.speculates}
    for name, arm in speculating.items():
        rules = (
            ("verification", preset.verification, arm.rule.kind),
            ("draft_length", preset.draft_length, arm.k_rule.kind),
        )
        for key, setting, kind in rules:
            default = _kind(setting.value)
            found[key if kind == default else f"arms.{name}.{key}"] = (default, kind)
    return found


def _kind(rule: JsonValue) -> JsonValue:
    return rule["kind"] if isinstance(rule, dict) else rule


@reads("engine", "sweep")
def _left_out(context: Context) -> Iterator[Finding]:
    """What the engine does and the preset does not."""
    preset = find_preset(context.scenario.engine.preset)
    if preset.left_out and PRESET_KEY not in context.scenario.sweep.vary:
        yield note(("engine", "preset"), f"{preset.label}, not modelled: {'; '.join(preset.left_out)}")


@reads("engine", "arms", "sweep")
def _methods_of_the_engine(context: Context) -> Iterator[Finding]:
    """Arms with a method that the engine is not known to have are priced as if it had it; vLLM is not asked for."""
    preset = find_preset(context.scenario.engine.preset)
    if preset.id == "vllm" or PRESET_KEY in context.scenario.sweep.vary:
        return
    for name, arm in context.scenario.arms.items():
        facts = arm.speculative_config.facts
        if facts is not None and preset.engine not in facts.engines:
            message = f"{preset.engine} is not known to have {arm.speculative_config.method}: simulated as if it had"
            yield note(("arms", name, "speculative_config", "method"), message)


@reads("engine", "hardware", "model", "workload")
def _prompts_fit_a_step(context: Context) -> Iterator[Finding]:
    """Other engines than vLLM start with a token budget below the context, and refuse single prompts."""
    engine, facts = context.engine, context.facts
    if engine is None or facts is None or engine.preset == "vllm" or engine.enable_chunked_prefill:
        return
    tokens = engine.max_num_batched_tokens or 0
    if facts.max_prompt_tokens > tokens:
        longest = f"the longest is {facts.max_prompt_tokens}"
        message = f"{tokens}: longer prompts are rejected without chunked prefill, and {longest}"
        yield note(("engine", "max_num_batched_tokens"), message)
