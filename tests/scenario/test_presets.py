"""Engine presets: what they fill in, that stated keys win, and that the result says everything and loads back."""

from pathlib import Path

import pytest
import yaml

from sim.errors import ScenarioError
from sim.metrics.record import Status
from sim.scenario.build import set_up, simulate
from sim.scenario.cells import cell_scenarios
from sim.scenario.dump import dump_scenario, plain_data
from sim.scenario.load import LoadedScenario, load_mapping, load_scenario
from sim.scenario.preset_report import preset_lines, preset_names
from sim.scenario.presets import EnginePreset, find_preset, preset_ids
from sim.speculation.base import SPECULATION

SHIPPED = Path(__file__).parents[2] / "scenarios"
PRESETS = ("vllm", "sglang", "trtllm", "hf", "llamacpp")
RATES = {"kind": "per_rank", "rates": [0.6, 0.15, 0.06, 0.03]}
#: limits of the plain and of the EAGLE-3 arm on an H100, and what is written into the scenario
GOLDEN = {
    "vllm": (1024, 1024, 8192, (16, True, True, "MAX_UTILIZATION", True, False), "vllm", None, None),
    "sglang": (2048, 48, 8192, (1, True, False, "MAX_UTILIZATION", True, True), "sglang", None, None),
    "trtllm": (2048, 2048, 8192, (32, False, True, "GUARANTEED_NO_EVICT", True, False), "trtllm", None, None),
    "hf": (1, 1, 4096, (16, False, True, "MAX_UTILIZATION", False, False), "hf", "rejection_sampling", None),
    "llamacpp": (4, 4, 2048, (1, True, True, "MAX_UTILIZATION", True, False), "llamacpp", None, None),
}
SWITCHES = (
    "block_size", "enable_chunked_prefill", "enable_mixed_chunk", "capacity_scheduler_policy", "enable_prefix_caching",
    "async_scheduling",
)  # fmt: skip


def small(preset: str | None, config: dict | None = None, arm: dict | None = None, **engine: object) -> LoadedScenario:
    chosen = {} if preset is None else {"preset": preset}
    config = config or {"method": "eagle3", "num_speculative_tokens": 3}
    spec = {"speculative_config": config, "acceptance": {"kind": "iid", "rate": 0.7}, **(arm or {})}
    return load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "engine": {"max_model_len": 4096, **chosen, **engine},
            "arms": {"plain": {}, "spec": spec},
            "workload": {
                "arrivals": {"kind": "closed", "max_concurrency": 24},
                "prompt_tokens": {"kind": "uniform", "min": 20, "max": 900},
                "output_tokens": {"kind": "uniform", "min": 5, "max": 40},
                "num_requests": 24,
            },
        }
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_resolved_values(preset: str) -> None:
    loaded = small(preset)
    scenario = loaded.scenario
    arms = {name: set_up(scenario, name, loaded.base_dir).engine for name in scenario.arms}
    engine = plain_data(scenario)["engine"]
    spec = plain_data(scenario)["arms"]["spec"]
    rules = (spec["verification"] or {}).get("kind"), (spec["draft_length"] or {}).get("kind")
    found = (arms["plain"].max_num_seqs, arms["spec"].max_num_seqs, arms["plain"].max_num_batched_tokens)
    assert (*found, tuple(engine[key] for key in SWITCHES), scenario.cost_model.engine, *rules) == GOLDEN[preset]


@pytest.mark.parametrize("preset", PRESETS)
def test_says_everything_and_loads_back(preset: str) -> None:
    scenario = small(preset).scenario
    assert load_mapping(yaml.safe_load(dump_scenario(scenario))).scenario == scenario
    assert all(plain_data(scenario)["engine"][key] is not None for key in find_preset(preset).switches)


def test_vllm_is_what_there_is_without_a_preset() -> None:
    stated, unstated = small("vllm").scenario, small(None).scenario
    assert dump_scenario(stated) == dump_scenario(unstated)
    assert plain_data(unstated)["engine"]["block_size"] == 16


def test_stated_keys_win() -> None:
    stated = {"block_size": 32, "enable_mixed_chunk": True, "async_scheduling": False, "max_num_seqs": 100}
    arm = {"verification": {"kind": "exact_match"}, "draft_length": {"kind": "heuristic"}}
    loaded = small("sglang", arm=arm, **stated)
    setup = set_up(loaded.scenario, "spec", loaded.base_dir)
    assert all(getattr(setup.engine, key) == value for key, value in stated.items())
    assert (setup.arm.rule.kind, setup.arm.k_rule.kind) == ("exact_match", "heuristic")
    (_, otherwise) = preset_lines(loaded.scenario)
    assert all(key in otherwise for key in (*stated, "arms.spec.verification", "arms.spec.draft_length"))
    naive = load_mapping({**plain_data(small("hf").scenario), "cost_model": {"kind": "roofline", "engine": "none"}})
    assert naive.scenario.cost_model.engine == "none"


def test_drafts_where_only_the_method_is_named() -> None:
    eagle = small("sglang", {"method": "eagle3"}, {"acceptance": RATES}).scenario
    config = eagle.arms["spec"].speculative_config
    assert (config.num_speculative_tokens, config.tree.depth, config.tree.top_k) == (7, 5, 4)
    assert eagle.engine.async_scheduling is False  # trees are not scheduled ahead
    chain = load_mapping({**plain_data(small("sglang").scenario), "model": "qwen3-8b", "arms": {
        "plain": {}, "spec": {"speculative_config": {"method": "eagle3"}, "acceptance": {"kind": "iid", "rate": 0.7}},
    }})  # fmt: skip
    assert chain.scenario.arms["spec"].speculative_config.num_speculative_tokens == 3
    drafter = {"method": "draft_model", "model": "llama-3.2-1b"}
    hf = small("hf", drafter).scenario.arms["spec"]
    assert (hf.speculative_config.num_speculative_tokens, hf.k_rule.kind) == (20, "confidence")
    assert small("llamacpp", drafter).scenario.arms["spec"].speculative_config.num_speculative_tokens == 3
    with pytest.raises(ScenarioError, match="num_speculative_tokens"):
        small("trtllm", drafter)


def test_look_ups_keep_their_rule_and_stop_the_overlap() -> None:
    ngram = {"method": "ngram", "num_speculative_tokens": 3}
    assert small("hf", ngram).scenario.arms["spec"].rule.kind == "greedy_draft"
    assert small("sglang", ngram).scenario.engine.async_scheduling is False
    with pytest.raises(ScenarioError, match="does not wait for"):
        small("sglang", ngram, async_scheduling=True)


def test_mistakes_have_their_place(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    text = (SHIPPED / "quickstart.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("engine: {", "engine: {preset: sglan, "), encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"s\.yaml:7:18: engine\.preset: .*did you mean sglang"):
        load_scenario(str(path))
    path.write_text(text.replace("engine: {", "engine: {preset: trtllm, max_num_seqs: 9000, "), encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"s\.yaml:7:\d+: engine\.max_num_seqs: .*8192 is below max_num_seqs"):
        load_scenario(str(path))


def test_varied_presets_are_filled_in_by_operating_point() -> None:
    loaded = load_scenario("engines")
    engine = plain_data(loaded.scenario)["engine"]
    assert all(engine[key] is None for key in SWITCHES)
    assert load_mapping(yaml.safe_load(dump_scenario(loaded.scenario))).scenario == loaded.scenario
    for cell in cell_scenarios(loaded.scenario):
        preset = find_preset(cell.vary["engine.preset"])
        assert cell.scenario.cost_model.engine == preset.cost_engine.value
        assert cell.scenario.engine.block_size == preset.switches["block_size"].value
    assert len(preset_lines(loaded.scenario)) == 1
    assert preset_names(loaded.scenario)[1] == "SGLang-like (preset version 1)"


def test_notes_say_what_is_left_out_and_what_the_engine_lacks() -> None:
    assert small("vllm").notes == ()
    text = "\n".join(small("hf").notes)
    assert "Hugging Face-like, not modelled: " in text
    assert "Hugging Face is not known to have eagle3" in text
    long = load_scenario("quickstart", ("engine.preset=trtllm",)).notes
    assert any("longer prompts are rejected without chunked prefill" in note for note in long)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("config", [
    {"method": "eagle3", "num_speculative_tokens": 3},
    {"method": "eagle3", "num_speculative_tokens": 7, "tree": {"kind": "dynamic", "depth": 5, "top_k": 4}},
    {"method": "draft_model", "model": "llama-3.2-1b", "num_speculative_tokens": 4},
    {"method": "ngram", "num_speculative_tokens": 3},
], ids=["chain", "tree", "draft_model", "ngram"])  # fmt: skip
def test_every_preset_serves_all_requests_to_the_end(preset: str, config: dict) -> None:
    """In a pool of 4608 tokens that is too small for all of them."""
    acceptance = {"acceptance": RATES} if "tree" in config else {}
    blocks = 4608 // find_preset(preset).switches["block_size"].value
    loaded = small(preset, config, acceptance, num_gpu_blocks_override=blocks)
    for arm in loaded.scenario.arms:
        record = simulate(loaded.scenario, arm, 0, loaded.base_dir)
        assert (record.requests.status == Status.FINISHED).all()
        assert (record.requests.emitted_tokens == record.requests.output_tokens).all()


def test_shipped_presets_are_complete() -> None:
    assert set(preset_ids()) == set(PRESETS)
    switches = set(find_preset("vllm").switches)
    engines = {name for method in SPECULATION.members().values() if method.facts for name in method.facts.engines}
    for preset in map(find_preset, PRESETS):
        assert set(preset.switches) == switches
        assert preset.engine in engines
        assert all(source for source in sources(preset))


def sources(preset: EnginePreset) -> list[str]:
    limits = [preset.max_num_seqs, preset.max_num_seqs_speculating, *preset.max_num_batched_tokens]
    settings = [*preset.switches.values(), preset.cost_engine, preset.verification, preset.draft_length, *preset.drafts]
    return [at.source for at in (*settings, *limits) if at is not None]
