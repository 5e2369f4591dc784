"""Scenarios written to a file, and what loading them says."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.errors import Problem, ScenarioError
from sim.scenario.load import LoadedScenario, load_scenario

FIVE_LINES = "model: llama-3.1-8b\nhardware: h100-sxm\narms:\n  plain: {}\n"
SPECULATIVE = """\
model: llama-3.1-8b
hardware: h100-sxm
arms:
  plain: {}
  eagle:
    speculative_config: {method: eagle3, num_speculative_tokens: 3}
    acceptance: {kind: iid, rate: 0.7}
"""

Load = Callable[..., LoadedScenario]
ProblemsOf = Callable[..., list[Problem]]


@pytest.fixture
def five_lines() -> str:
    return FIVE_LINES


@pytest.fixture
def speculative() -> str:
    return SPECULATIVE


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load a text as `s.yaml` of an otherwise empty current folder."""
    monkeypatch.chdir(tmp_path)

    def load_text(text: str, *overrides: str) -> LoadedScenario:
        Path("s.yaml").write_text(text, encoding="utf-8")
        return load_scenario("s.yaml", overrides)

    return load_text


@pytest.fixture
def problems_of(load: Load) -> ProblemsOf:
    """All problems of a text; fails when there are none."""

    def collect(text: str, *overrides: str) -> list[Problem]:
        with pytest.raises(ScenarioError) as caught:
            load(text, *overrides)
        return list(caught.value.problems)

    return collect
