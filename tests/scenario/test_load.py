from pathlib import Path

import pytest
from pydantic import ValidationError

from sim.errors import ScenarioError
from sim.scenario.defaults import CONCURRENCIES, CONCURRENCY_KEY
from sim.scenario.files import shipped_names
from sim.scenario.load import load_mapping, load_scenario


def test_five_lines_are_a_runnable_scenario(load, five_lines: str) -> None:  # type: ignore[no-untyped-def]
    scenario = load(five_lines).scenario
    assert (scenario.name, scenario.seed, scenario.baseline) == ("s", 0, "plain")
    assert scenario.sweep.replicates == 5
    assert scenario.sweep.vary == {CONCURRENCY_KEY: CONCURRENCIES}
    assert scenario.sweep.breakeven is not None
    assert scenario.workload.arrivals.kind == "closed"
    assert (scenario.workload.prompt_tokens.value, scenario.workload.output_tokens.value) == (1024, 256)
    assert scenario.cost_model.kind == "roofline"
    assert not scenario.arms["plain"].speculates


def test_given_arrivals_are_not_swept(load, five_lines: str) -> None:  # type: ignore[no-untyped-def]
    scenario = load(five_lines + "workload: {arrivals: {kind: poisson, request_rate: 3}}").scenario
    assert (scenario.sweep.vary, scenario.sweep.breakeven) == ({}, None)
    varied = load(five_lines + "sweep: {vary: {engine.block_size: [16, 32]}}").scenario
    assert list(varied.sweep.vary) == ["engine.block_size"]


@pytest.mark.parametrize(
    ("arms", "baseline"),
    [
        ("{plain: , a: {}}", "plain"),
        ("{a: {}, plain: {}}", "plain"),
        ("{b: {speculative_config: null}, a: {}}", "b"),
        ("{b: {speculative_config: {method: plain}}}", "b"),
    ],
)
def test_the_baseline_defaults_to_the_arm_without_speculation(load, arms: str, baseline: str) -> None:  # type: ignore[no-untyped-def]
    assert load(f"model: llama-3.1-8b\nhardware: h100-sxm\narms: {arms}").scenario.baseline == baseline


def test_a_speculative_baseline_is_allowed_and_said(load, speculative: str) -> None:  # type: ignore[no-untyped-def]
    notes = load(speculative + "baseline: eagle\n").notes
    assert notes == ("s.yaml:8:11: baseline: the baseline eagle speculates itself: gains are relative to it",)


def test_break_even_without_a_sweep_is_reported(load, five_lines: str) -> None:  # type: ignore[no-untyped-def]
    text = five_lines + "workload: {arrivals: {kind: poisson, request_rate: 3}}\nsweep: {breakeven: {}}\n"
    assert load(text).notes == ("s.yaml:6:20: sweep.breakeven: no effect: sweep.vary is empty",)


def test_hardware_overrides_and_inline_shapes(load, five_lines: str) -> None:  # type: ignore[no-untyped-def]
    text = five_lines.replace("h100-sxm", "{gpu: H100_SXM, overrides: {memory_bandwidth: 4.8 TB/s, memory: 141 GB}}")
    scenario = load(text).scenario
    gpu = scenario.hardware.load()
    assert (gpu.memory_bandwidth, gpu.memory) == (4.8e12, 141 * 10**9)
    inline = load_mapping(
        {
            "model": {"target": scenario.model.load(Path()).model_dump(mode="json")},
            "hardware": {"gpu": gpu.model_dump(mode="json")},
            "arms": {"plain": {}},
        }
    ).scenario
    assert inline.hardware.load() == gpu
    assert inline.model.load(Path()) == scenario.model.load(Path())


def test_mistakes_in_inline_shapes_have_their_place(problems_of) -> None:  # type: ignore[no-untyped-def]
    problems = problems_of("model: llama-3.1-8b\nhardware: {gpu: {name: x, sms: many}}\narms: {plain: {}}\n")
    assert ("s.yaml:2:32", "hardware.gpu.sms") in {(problem.where, problem.key) for problem in problems}
    assert "hardware.gpu.memory" in {problem.key for problem in problems if problem.message == "missing"}


def test_scenarios_are_frozen(load, five_lines: str) -> None:  # type: ignore[no-untyped-def]
    scenario = load(five_lines).scenario
    with pytest.raises(ValidationError):
        scenario.seed = 3


def test_mappings_load_like_files(load, speculative: str) -> None:  # type: ignore[no-untyped-def]
    mapping = {
        "name": "s",
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "arms": {
            "plain": None,
            "eagle": {
                "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
                "acceptance": {"kind": "iid", "rate": 0.7},
            },
        },
    }
    assert load_mapping(mapping).scenario == load(speculative).scenario


@pytest.mark.parametrize("value", [object(), float("nan"), float("inf"), {1, 2}, b"x", 10**400, "\ud800", -0.5])
def test_mappings_with_strange_values_are_scenario_errors(value: object) -> None:
    base = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "arms": {"plain": {}}}
    for wrong in ({"seed": value}, {"engine": {"max_num_seqs": value}}, {"arms": value}, {"name": value}):
        with pytest.raises(ScenarioError) as caught:
            load_mapping({**base, **wrong})
        assert all(problem.where == "" for problem in caught.value.problems)


# files


def test_shipped_scenarios_are_found_by_name() -> None:
    assert "quickstart" in shipped_names()
    loaded = load_scenario("quickstart")
    assert loaded.scenario.name == "quickstart"
    assert (loaded.base_dir / "quickstart.yaml").is_file()
    assert loaded.source_text == (loaded.base_dir / "quickstart.yaml").read_text(encoding="utf-8")


def test_unknown_files_are_answered_with_the_nearest_shipped_one(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"quickstrat: no such file.*did you mean quickstart"):
        load_scenario("quickstrat")
    with pytest.raises(ScenarioError, match="is a folder"):
        load_scenario(str(tmp_path))
    for name in ("\0", "x" * 5000):
        with pytest.raises(ScenarioError):
            load_scenario(name)


# extends


def write(**files: str) -> None:
    for name, text in files.items():
        Path(f"{name}.yaml").write_text(text, encoding="utf-8")


def test_extends_merges_maps_and_replaces_lists(load, speculative: str) -> None:  # type: ignore[no-untyped-def]
    load(speculative)
    write(
        base=speculative + "engine: {block_size: 32, max_num_seqs: 64}\nsweep: {vary: {engine.block_size: [1, 2, 4]}}\n"
    )
    text = "extends: base.yaml\nengine: {max_num_seqs: 8}\nsweep: {vary: {engine.block_size: [16]}}\n"
    scenario = load(text).scenario
    assert (scenario.engine.block_size, scenario.engine.max_num_seqs) == (32, 8)
    assert scenario.sweep.vary == {"engine.block_size": (16,)}
    assert list(scenario.arms) == ["plain", "eagle"]


def test_another_kind_replaces_the_whole_mapping(load, five_lines: str) -> None:  # type: ignore[no-untyped-def]
    load(five_lines)
    write(base=five_lines + "workload: {arrivals: {kind: closed, max_concurrency: 4}}\n")
    scenario = load("extends: base.yaml\nworkload: {arrivals: {kind: poisson, request_rate: 2}}\n").scenario
    assert scenario.workload.arrivals.request_rate == 2


def test_problems_in_base_files_name_the_base_file(problems_of, five_lines: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yaml").write_text(five_lines + "engine: {block_sise: 3, max_num_seqs: 012}\n")
    problems = problems_of("extends: sub/base.yaml\nslo: {}\n")
    assert [problem.where for problem in problems] == ["sub/base.yaml:5:10", "sub/base.yaml:5:39", "s.yaml:2:1"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("https://example.org/x.yaml", "never a URL"),
        ("[a, b]", "allowed: one local file name"),
        ("missing.yaml", "missing.yaml: no such file"),
        ("s.yaml", "in a circle"),
        ("other.yaml", "in a circle"),
    ],
)
def test_bad_extends(problems_of, five_lines: str, tmp_path: Path, value: str, message: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "other.yaml").write_text("extends: s.yaml\n")
    (problem, *_) = problems_of(five_lines + f"extends: {value}\n")
    assert message in problem.message
    assert problem.key == "extends"


# --set


def test_overrides_come_last_and_parse_yaml(load, speculative: str) -> None:  # type: ignore[no-untyped-def]
    scenario = load(
        speculative,
        "engine.max_num_seqs=1e2",
        "seed=7",
        "model.weight_dtype=fp8",
        "arms.eagle.acceptance={kind: per_position, rates: [0.8, 0.5, 0.3]}",
        "workload.arrivals.kind=poisson",
        "workload.arrivals.request_rate=120 /min",
        "sweep.vary.workload.arrivals.request_rate=[1, 2]",
    ).scenario
    assert (scenario.engine.max_num_seqs, scenario.seed, scenario.model.weight_dtype) == (100, 7, "fp8")
    assert scenario.arms["eagle"].acceptance.rates == (0.8, 0.5, 0.3)
    assert scenario.workload.arrivals.request_rate == 2.0
    assert scenario.sweep.vary == {"workload.arrivals.request_rate": (1.0, 2.0)}


def test_overrides_reach_names_with_dots_and_list_elements(load, five_lines: str) -> None:  # type: ignore[no-untyped-def]
    text = five_lines + (
        "  k3.5: {speculative_config: {method: ngram, num_speculative_tokens: 3}, acceptance: {kind: iid, rate: 0.5}}\n"
        "workload: {classes: [{name: a, share: 0.5}, {name: b, share: 0.5}]}\n"
    )
    scenario = load(text, "arms.k3.5.acceptance.rate=0.25", "workload.classes[1].speculate=false").scenario
    assert scenario.arms["k3.5"].acceptance.rate == 0.25
    assert [traffic.speculate for traffic in scenario.workload.classes] == [True, False]


@pytest.mark.parametrize(
    ("argument", "key", "message"),
    [
        ("engine.max_num_seq=3", "engine.max_num_seq", "unknown key; did you mean max_num_seqs?"),
        ("engine.max_num_seqs=many", "engine.max_num_seqs", "expected a count"),
        ("engine.max_num_seqs=012", "engine.max_num_seqs", "'012' is no number"),
        ("engine.max_num_seqs", "engine.max_num_seqs", "expected key=value"),
        ("=3", "", "expected key=value"),
        ("model.target.name.x=3", "model.target.name.x", "'name' cannot be set below"),
        ("seed=[1", "seed", "invalid YAML"),
        ("seed=*x", "seed", "alias *x is not allowed"),
    ],
)
def test_bad_overrides_say_set(problems_of, five_lines: str, argument: str, key: str, message: str) -> None:  # type: ignore[no-untyped-def]
    (problem,) = problems_of(five_lines, argument)
    assert (problem.where, problem.key) == ("--set", key)
    assert problem.message.startswith(message)
