"""The model catalogue: `sim/models/data/<id>.yaml`, Hugging Face ids listed there, and `config.json` files."""

from pathlib import Path

from sim.catalogue import Catalogue
from sim.errors import ScenarioError
from sim.models.hf_config import read_hf_config
from sim.models.model import Model

_MODELS = Catalogue("model", Path(__file__).parent / "data", Model)


def model_ids() -> tuple[str, ...]:
    """Ids of all models, sorted."""
    return _MODELS.ids()


def find_model(name: str, base_dir: Path) -> Model:
    """The model that `name` means: a catalogue id, a Hugging Face id, or the path of a `config.json`.

    Args:
        name: such as `llama-3.1-8b`, `meta-llama/Llama-3.1-8B-Instruct` or `my-model/config.json`.
        base_dir: where a relative path starts.

    Raises:
        ScenarioError: unknown or ambiguous name, or a configuration that cannot be read or simulated.
    """
    if name.lower().endswith(".json"):
        return read_hf_config(base_dir / name)
    if "/" not in name:
        return _MODELS.find(name)
    return _by_hf_id(name) or _by_repository_name(name)


def _by_hf_id(name: str) -> Model | None:
    for model_id in model_ids():
        if name.lower() in _MODELS.text(model_id).lower():
            model = _MODELS.load(model_id)
            if name.lower() in (hf_id.lower() for hf_id in model.hf_ids):
                return model
    return None


def _by_repository_name(name: str) -> Model:
    """Never guess that a repository has the shape of an entry with a similar name: say what to do instead."""
    try:
        similar = f"; the catalogue has {_MODELS.find(name.rsplit('/', 1)[1]).name}, name it if the shape is the same"
    except ScenarioError:
        similar = ""
    raise ScenarioError(
        f"the Hugging Face id {name!r} is not in the catalogue{similar}; "
        "`specsim catalog models` lists the ids, or give the path of its config.json"
    )
