"""Writes docs/reference/engines.md from the presets of `sim/scenario/data/presets`. Used by docs/generate.py."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import JsonValue

from sim.scenario.presets import EnginePreset, Limit, find_preset
from sim.scenario.suggestions import flow

PAGE = Path(__file__).parent / "reference" / "engines.md"
#: In the order of the documentation.
PRESETS = ("vllm", "sglang", "trtllm", "hf", "llamacpp")
HEAD = """# Engine presets

<!-- written by docs/generate.py from sim/scenario/data/presets: edit those -->

`engine: {preset: vllm | sglang | trtllm | hf | llamacpp}` fills in what an engine does when nobody tells it otherwise.
Every key that is stated counts instead. The presets are *-like*: versions of our own, each value with its source below,
and what of the engine is not modelled said. None was compared with its engine step by step; what its cost profile was
compared with says [cost-model](../background/cost-model.md#engines).

`specsim check` and `specsim explain` list what the preset set and what is stated otherwise; results, terminal and
dashboard name it. `scenarios/engines.yaml` compares the five on the same traffic. The scheduler's two orders and both
kinds of admission: [server](../background/server.md#other-engines).

- Switches, cost profile and rules are written into the resolved scenario. Limits stay null there while they are not
  stated, since they depend on the GPU and on whether the arm speculates. Where the sweep varies `engine.preset`,
  everything stays null and each operating point is filled in by itself.
- `verification` and `draft_length` are those of arms that speculate and state none. Methods without probabilities are
  verified by `greedy_draft`. A K rule goes to methods that the engine has.
- What is drafted is filled in where an arm names a method and neither K nor a tree. A tree needs an acceptance that
  knows trees, or the check says so.
- SGLang's overlapped scheduling is left off when an arm drafts on the CPU, drafts trees or Medusa's heads, or has a K
  rule that looks at the drafts.

"""


def page() -> str:
    """The whole page."""
    presets = [find_preset(name) for name in PRESETS]
    lines = (*overview(presets), *(line for preset in presets for line in sources(preset)))
    return HEAD + "\n".join(lines).rstrip() + "\n"


def overview(presets: list[EnginePreset]) -> Iterator[str]:
    """One row per setting, one column per preset."""
    yield "| | " + " | ".join(f"`{preset.id}`" for preset in presets) + " |"
    yield "|---" * (len(presets) + 1) + "|"
    columns = [dict(settings(preset)) for preset in presets]
    for key in dict.fromkeys(key for column in columns for key in column):
        yield f"| `{key}` | " + " | ".join(column.get(key, ("vLLM's",))[0] for column in columns) + " |"
    yield ""


def settings(preset: EnginePreset) -> Iterator[tuple[str, tuple[str, str]]]:
    """Key, and its value and source in words."""
    for key, limit in (("max_num_seqs", preset.max_num_seqs), ("... speculating", preset.max_num_seqs_speculating)):
        if limit or preset.max_num_seqs:
            yield key, (str(limit.value), limit.source) if limit else ("the same", "")
    if preset.max_num_batched_tokens:
        steps = preset.max_num_batched_tokens
        yield "max_num_batched_tokens", (", ".join(map(step, steps)), "; ".join(limit.source for limit in steps))
    for key, setting in preset.switches.items():
        yield key, (words(setting.value), setting.source)
    yield "cost_model.engine", (words(preset.cost_engine.value), preset.cost_engine.source)
    yield "verification", (words(preset.verification.value), preset.verification.source)
    yield "draft_length", (words(preset.draft_length.value), preset.draft_length.source)


def step(limit: Limit) -> str:
    """A limit and the GPUs it is for."""
    return f"{limit.value} below {limit.below_gib:g} GiB" if limit.below_gib else str(limit.value)


def words(value: JsonValue) -> str:
    """A value as it is written in a scenario."""
    return flow(value) if isinstance(value, dict) else str(value).lower() if isinstance(value, bool) else str(value)


def sources(preset: EnginePreset) -> Iterator[str]:
    """Where the values of one preset come from, what it drafts, and what it leaves out."""
    yield f"## {preset.label}, version {preset.version}"
    yield ""
    yield f"Read from {preset.release}."
    yield ""
    yield "| key | value | source |"
    yield "|---|---|---|"
    for key, (value, source) in settings(preset):
        if source:
            yield f"| `{key}` | {value} | {source} |"
    yield ""
    for drafts in preset.drafts:
        models = f" on targets named {' or '.join(drafts.models)}" if drafts.models else ""
        yield f"- drafts of {', '.join(f'`{method}`' for method in drafts.methods)}{models}: `{flow(drafts.config)}`"
        yield f"  ({drafts.source})"
    yield from (f"- not modelled: {what}" for what in preset.left_out)
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
