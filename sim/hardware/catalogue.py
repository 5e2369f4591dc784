"""The GPU catalogue: `sim/hardware/data/gpus/<id>.yaml`."""

from pathlib import Path

from sim.catalogue import Catalogue
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
