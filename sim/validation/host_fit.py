"""Settings of whole servers, what they are predicted to take, and the host times that fit them best."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calibration.fit import fit

Floats = NDArray[np.float64]


class Setting(NamedTuple):
    """One way to load a server; `tp` GPUs, tensor parallel, the experts whole if `expert_parallel`."""

    isl: int
    osl: int
    concurrency: int
    tp: int
    expert_parallel: bool = False


class Prediction(NamedTuple):
    """One setting, in milliseconds.

    Attributes:
        batch: requests that run at once: the concurrency, or what the KV pool holds.
        measured: median over repeated settings.
        kernels: decode step and share of prefill, without the host.
        ours: with the host time of the engine's profile.
        naive: datasheet peaks.
    """

    setting: Setting
    batch: int
    measured: float
    kernels: float
    ours: float
    naive: float


@dataclass(frozen=True, slots=True)
class HostFit:
    """Host times in milliseconds, beside the kernels."""

    base_ms: float
    per_request_ms: float

    def times(self, predictions: Iterable[Prediction]) -> Floats:
        """Predicted time per output token."""
        return np.array([p.kernels + self.base_ms + self.per_request_ms * p.batch for p in predictions])


def fit_host(servers: Iterable[list[Prediction]]) -> HostFit:
    """Host times that fit these servers best; each server has the same weight."""
    groups = list(servers)
    points = [p for group in groups for p in group]
    weights = np.array([1.0 / len(group) for group in groups for _ in group])

    def model(x: Floats) -> Floats:
        return HostFit(float(x[0]), float(x[1])).times(points)

    found = fit(model, column(points, "measured"), (0.3, 0.01), ((0.0, 3.0), (0.0, 0.1)), weights)
    return HostFit(*found.parameters)


def column(predictions: Iterable[Prediction], name: str) -> Floats:
    """One field of all predictions."""
    return np.array([getattr(p, name) for p in predictions], np.float64)
