"""The verification rule of an arm in a run's results, and in its acceptance."""

import csv
import json
from pathlib import Path

import pytest

from sim.experiment.run import run
from sim.scenario.load import load_mapping

TEXT = "a drafter that knows the text asks for many tokens and gets most of them, and pays for the others. " * 3


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "text.txt").write_text(TEXT)
    acceptance = {"kind": "distributions", "language_models": {"text": "text.txt", "target_order": 3}}
    config = {"method": "eagle3", "num_speculative_tokens": 3}
    rules = {"greedy": None, "sampled": {"kind": "rejection_sampling"}, "lossy": {"kind": "membership", "top_k": 3}}
    arms = {
        name: {"speculative_config": config, "acceptance": acceptance} | ({"verification": rule} if rule else {})
        for name, rule in rules.items()
    }
    scenario = {
        "hardware": "h100-sxm",
        "model": "llama-3.1-8b",
        "cost_model": {"kind": "constant", "target_ms": 10, "draft_ms": 1},
        "arms": {"plain": {}, **arms},
        "workload": {
            "arrivals": {"kind": "closed", "max_concurrency": 8},
            "prompt_tokens": {"kind": "fixed", "value": 20},
            "output_tokens": {"kind": "fixed", "value": 100},
            "num_requests": 40,
        },
        "sweep": {"replicates": 1},
    }
    return run(load_mapping(scenario, folder), folder / "results", jobs=1)


def table(run_dir: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((run_dir / name).read_text().splitlines()))


def test_every_row_says_whether_it_is_lossless(finished: Path) -> None:
    found = {row["arm"]: (row["verification"], row["lossless"]) for row in table(finished, "summary.csv")}
    assert found == {
        "plain": ("", "True"),
        "greedy": ("greedy_draft", "True"),
        "sampled": ("rejection_sampling", "True"),
        "lossy": ("membership", "False"),
    }
    assert {(row["arm"], row["lossless"]) for row in table(finished, "compare.csv")} == {
        ("greedy", "True"), ("sampled", "True"), ("lossy", "False"),
    }  # fmt: skip
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["verification"]["lossy"] == {"kinds": ["membership"], "lossless": False}
    assert "plain" not in manifest["verification"]


def test_the_rule_decides_the_acceptance_of_distributions(finished: Path) -> None:
    """One rule's tokens per step are not another's, on the same models; a lossy rule accepts most."""
    tokens = {row["arm"]: float(row["tokens_per_step"]) for row in table(finished, "summary.csv")}
    assert 1 < tokens["greedy"] != tokens["sampled"] > 1
    assert tokens["lossy"] > max(tokens["greedy"], tokens["sampled"])


def test_the_text_travels_with_the_results(finished: Path) -> None:
    (copy,) = (finished / "inputs").iterdir()
    assert copy.read_text() == TEXT
    assert f"text: inputs/{copy.name}" in (finished / "scenario.resolved.yaml").read_text()
