"""The JSON Schema: current, valid, and of one mind with the loader."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from sim.cli import run_command
from sim.scenario.dump import dump_scenario
from sim.scenario.files import shipped_folder, shipped_names
from sim.scenario.json_schema import schema_text
from sim.scenario.load import load_scenario

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "scenario.schema.json"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_committed_schema_is_current() -> None:
    """To renew it: `specsim schema > docs/scenario.schema.json`."""
    assert COMMITTED.read_text(encoding="utf-8") == schema_text()


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["schema"]) == 0
    assert capsys.readouterr().out == schema_text()


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_scenarios_and_their_dumps_follow_the_schema(
    name: str, validator: jsonschema.Draft202012Validator
) -> None:
    text = (shipped_folder() / f"{name}.yaml").read_text(encoding="utf-8")
    assert list(validator.iter_errors(yaml.safe_load(text))) == []
    dump = dump_scenario(load_scenario(name).scenario)
    assert list(validator.iter_errors(yaml.safe_load(dump))) == []


@pytest.mark.parametrize(
    "change",
    [{"max_num_seqs": 4}, {"engine": {"max_num_seq": 4}}, {"arms": {}}, {"hardware": 3}, {"seed": -1}, {"slo": []}],
)
def test_mistakes_do_not_follow_it(change: dict[str, object], validator: jsonschema.Draft202012Validator) -> None:
    good = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "arms": {"plain": None}}
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, **change})
