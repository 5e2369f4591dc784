"""Finding models by id, by Hugging Face id and by file."""

from pathlib import Path

import pytest

from sim.catalogue import normalised
from sim.errors import ScenarioError
from sim.models.catalogue import find_model, model_ids

HERE = Path()


def test_names_are_unique_even_normalised():
    assert len({normalised(model_id) for model_id in model_ids()}) == len(model_ids()) >= 30


@pytest.mark.parametrize("model_id", model_ids())
def test_every_entry_is_found_by_id_name_and_hugging_face_id(model_id):
    model = find_model(model_id, HERE)
    assert model.source
    assert find_model(model.name, HERE) is model
    assert model.hf_ids
    for hf_id in model.hf_ids:
        assert find_model(hf_id.upper(), HERE) is model


def test_instruct_variant_with_the_same_shape():
    assert find_model("meta-llama/Llama-3.1-8B-Instruct", HERE).name == "Llama-3.1-8B"


def test_a_repository_that_is_not_listed_is_not_guessed():
    with pytest.raises(
        ScenarioError, match=r"'someone/llama-3.1-8b' is not in the catalogue; the catalogue has Llama-3.1-8B"
    ):
        find_model("someone/llama-3.1-8b", HERE)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("lama-3.1-8b", "did you mean llama-3.1-8b"),
        ("qwen3", r"ambiguous.*qwen3-0.6b.*qwen3-8b"),
        ("", "unknown model ''"),
    ],
)
def test_misspelt_names(name, complaint):
    with pytest.raises(ScenarioError, match=complaint):
        find_model(name, HERE)
