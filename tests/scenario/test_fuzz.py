"""F1: whatever a scenario says, loading gives a scenario or a ScenarioError whose problems have a place."""

import copy
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.scenario.cells import cell_scenarios
from sim.scenario.document import from_plain, walk
from sim.scenario.dump import dump_scenario
from sim.scenario.files import shipped_folder, shipped_names
from sim.scenario.load import LoadedScenario, load_mapping
from sim.scenario.yaml_reader import read_yaml

WORDS = [
    "kind",
    "method",
    "arms",
    "sweep",
    "vary",
    "extends",
    "name",
    "inline",
    "trace",
    "rates",
    "iid",
    "plain",
    "fixed",
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([*WORDS, "8k", "2 s", "1e9", "-1", "a.b", "a[0]"])
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@cache
def shipped() -> list[dict[str, Any]]:
    return [read_yaml((shipped_folder() / f"{n}.yaml").read_bytes(), n)[0].plain() for n in shipped_names()]


def must_load_or_complain(mapping: dict[str, Any]) -> LoadedScenario | None:
    loaded, problems = None, []
    try:
        loaded = load_mapping(mapping, shipped_folder())
    except ScenarioError as error:
        problems = list(error.problems)
    assert (loaded is None) == bool(problems)
    assert all(problem.message for problem in problems)
    assert loaded is None or dump_scenario(loaded.scenario)
    return loaded


@given(st.dictionaries(st.sampled_from(["model", "hardware", "arms", "engine", "workload", "sweep", "slo"]), JUNK))
@settings(max_examples=60, deadline=2000)
def test_arbitrary_sections(sections: dict[str, Any]) -> None:
    must_load_or_complain({"model": "llama-3.1-8b", "hardware": "h100-sxm", "arms": {"plain": {}}, **sections})


@given(st.data())
@settings(max_examples=120, deadline=3000)
def test_a_shipped_scenario_with_one_place_changed(data: st.DataObject) -> None:
    mapping = copy.deepcopy(data.draw(st.sampled_from(shipped()), "scenario"))
    paths = [path for path, _ in walk(from_plain(mapping)) if path]
    path = data.draw(st.sampled_from(paths), "path")
    parent: Any = mapping
    for step in path[:-1]:
        parent = parent[step]
    if isinstance(parent, dict) and data.draw(st.booleans(), "rename"):
        parent[data.draw(st.text(max_size=5) | st.sampled_from(WORDS), "key")] = parent.pop(path[-1])
    else:
        parent[path[-1]] = data.draw(JUNK, "value")
    loaded = must_load_or_complain(mapping)
    if loaded is not None:
        assert cell_scenarios(loaded.scenario)


@given(st.integers(0, 4), st.integers(0, 2000), st.binary(max_size=4), st.integers(0, 6))
@settings(max_examples=100, deadline=3000)
def test_a_shipped_text_with_bytes_changed(which: int, at: int, insert: bytes, cut: int) -> None:
    name = shipped_names()[which % len(shipped_names())]
    text = (shipped_folder() / f"{name}.yaml").read_bytes()
    try:
        root, _ = read_yaml(text[:at] + insert + text[at + cut :], name)
    except ScenarioError:
        return
    if isinstance(root.value, dict):
        must_load_or_complain(root.plain())
