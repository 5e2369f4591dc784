"""`specsim catalog`: tables, single entries with sources, JSON."""

import json

import pytest
from click.testing import CliRunner

from sim.cli.catalog import catalog
from sim.errors import ScenarioError
from sim.hardware.catalogue import gpu_ids
from sim.models.catalogue import model_ids


def output(*arguments):
    result = CliRunner().invoke(catalog, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize(("kind", "ids"), [("gpus", gpu_ids()), ("models", model_ids())])
def test_lists_have_every_entry(kind, ids):
    lines = output(kind).splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(ids)
    document = json.loads(output(kind, "--json"))
    assert [entry["id"] for entry in document] == list(ids)
    assert all(entry["source"] for entry in document)


def test_one_gpu_shows_its_source_and_doubts():
    text = output("gpus", "A10G")
    assert "bf16_tflops:             70" in text
    assert "certain:                 no" in text
    assert "UNCERTAIN" in text
    assert "source:" in text


def test_one_model_by_hugging_face_id():
    document = json.loads(output("models", "meta-llama/Llama-3.1-8B", "--json"))
    assert (document["id"], document["parameters_billion"]) == ("llama-3.1-8b", 8.03)
    assert document["kv_bytes_per_token"] == 131_072


def test_mistakes():
    with pytest.raises(ScenarioError, match="ambiguous"):
        CliRunner().invoke(catalog, ["gpus", "h100"], catch_exceptions=False)
    assert CliRunner().invoke(catalog, ["tpus"]).exit_code == 2
