from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.scenario.dump import dump_scenario, scenario_hash
from sim.scenario.files import shipped_names
from sim.scenario.load import load_mapping, load_scenario

BASE = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "arms": {"plain": {}}}


@pytest.mark.parametrize("name", shipped_names())
def test_the_dump_loads_back_to_an_equal_scenario(name: str) -> None:
    loaded = load_scenario(name)
    text = dump_scenario(loaded.scenario)
    path = loaded.base_dir / f"{Path(name).name}.yaml"
    again = load_text(text, path)
    assert again.scenario == loaded.scenario
    assert dump_scenario(again.scenario) == text
    assert again.scenario.sweep.vary == loaded.scenario.sweep.vary


def load_text(text: str, beside: Path):  # type: ignore[no-untyped-def]
    """Load a text as if it lay beside a shipped scenario (for the traces)."""
    from sim.scenario.yaml_reader import read_yaml

    root, problems = read_yaml(text.encode(), beside.name)
    assert problems == []
    return load_mapping(root.plain(), beside.parent)


@pytest.mark.parametrize(
    "spellings",
    [
        [{"slo": {"ttft": 2000}}, {"slo": {"ttft": "2 s"}}, {"slo": {"ttft": "2000 ms"}}, {"slo": {"ttft": 2e3}}],
        [{"engine": {"max_num_seqs": 8000}}, {"engine": {"max_num_seqs": "8k"}}, {"engine": {"max_num_seqs": 8e3}}],
        [
            {"hardware": {"gpu": "h100-sxm", "overrides": {"memory": text}}}
            for text in ("80 GiB", "81920 MiB", 85899345920, "85899345.92 kB")
        ],
        [
            {"workload": {"arrivals": {"kind": "poisson", "request_rate": text}}}
            for text in (2, "2 /s", "2 rps", "120 /min")
        ],
        [{"sweep": {"vary": {"engine.max_num_seqs": v}}} for v in ([1000, 2000], ["1k", 2e3], ("1000", "2k"))],
        [{}, {"sweep": {"replicates": 3}}, {"seed": 5}, {"name": "other"}, {"baseline": "plain"}, {"slo": None}],
    ],
)
def test_m14_spelling_does_not_change_the_hash(spellings: list[dict[str, object]]) -> None:
    scenarios = [load_mapping({**BASE, **spelling}).scenario for spelling in spellings]
    assert len({scenario_hash(scenario) for scenario in scenarios}) == 1
    if spellings[0]:
        assert len({dump_scenario(scenario) for scenario in scenarios}) == 1


def test_the_hash_sees_every_other_field() -> None:
    changes = [
        {}, {"slo": {"ttft": 1}}, {"engine": {"block_size": 32}}, {"hardware": "h200-sxm"}, {"model": "qwen2.5-7b"},
        {"workload": {"num_requests": 7}}, {"sweep": {"vary": {}}}, {"cost_model": "naive"},
    ]  # fmt: skip
    assert len({scenario_hash(load_mapping({**BASE, **change}).scenario) for change in changes}) == len(changes)


AWKWARD = [
    "1e3",
    "012",
    "60:30",
    "yes",
    "null",
    "true",
    "~",
    "0x1f",
    ".nan",
    "- a",
    "a: b",
    "#x",
    "5",
    "2026-11-21",
    "é\u2028x",
]


@given(st.sampled_from(AWKWARD) | st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=20))
def test_awkward_names_survive_the_round_trip(text: str) -> None:
    import yaml

    from sim.scenario.dump import _Dumper
    from sim.scenario.yaml_reader import read_yaml

    written = yaml.dump({"a": text}, Dumper=_Dumper, allow_unicode=True, width=120)
    root, problems = read_yaml(written.encode(), "s.yaml")
    assert problems == []
    assert root.plain() == {"a": text}
