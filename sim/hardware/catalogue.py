"""The GPU catalogue: `sim/hardware/data/gpus/<id>.yaml`, and a user's corrections to an entry."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from sim.catalogue import Catalogue
from sim.errors import Problem, ScenarioError
from sim.hardware.gpu import Gpu

_GPUS = Catalogue("GPU", Path(__file__).parent / "data" / "gpus", Gpu)


def gpu_ids() -> tuple[str, ...]:
    """Ids of all GPUs, sorted."""
    return _GPUS.ids()


def find_gpu(name: str) -> Gpu:
    """The GPU that `name` means; see `Catalogue.find` for what may be left out.

    Raises:
        ScenarioError: unknown or ambiguous; the message names the candidates.
    """
    return _GPUS.find(name)


def with_overrides(gpu: Gpu, overrides: Mapping[str, object]) -> Gpu:
    """`gpu` with some of its facts replaced, spelled as in the catalogue (`{"memory_bandwidth": "4.8 TB/s"}`).

    Raises:
        ScenarioError: unknown names (with the nearest one) and values out of range, all at once.
    """
    problems = [Problem("", f"hardware.overrides.{key}", _unknown(key)) for key in overrides if key not in _NAMES]
    known = {key: value for key, value in overrides.items() if key in _NAMES}
    try:
        changed = Gpu.model_validate(gpu.model_dump() | known)
    except ValidationError as error:
        problems += [
            Problem("", ".".join(("hardware.overrides", *map(str, e["loc"]))), e["msg"].removeprefix("Value error, "))
            for e in error.errors()
        ]
    if problems:
        raise ScenarioError(problems)
    return changed


_NAMES = tuple(Gpu.model_fields)


def _unknown(key: str) -> str:
    near = get_close_matches(key, _NAMES, n=1)
    hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(_NAMES)}"
    return f"unknown GPU property; {hint}"
