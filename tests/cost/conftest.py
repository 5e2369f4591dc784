"""Deployments for pricing, without a memory plan."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.deployment import Deployment, MemoryBudget
from sim.hardware.catalogue import find_gpu
from sim.hardware.gpu import Gpu
from sim.models.catalogue import find_model
from sim.models.model import Model

EMPTY = MemoryBudget(0, 0, 0, 0, 0, 0, 0, 0)


def make_deployment(
    model: str | Model,
    gpu: str | Gpu,
    *,
    drafter: Model | None = None,
    tp: int = 1,
    weights: str | None = None,
    kv: str = "bf16",
) -> Deployment:
    target = find_model(model, Path()) if isinstance(model, str) else model
    card = find_gpu(gpu) if isinstance(gpu, str) else gpu
    dtype = weights or target.weight_dtype
    return Deployment(target, drafter, card, tp, tp, dtype, kv, 16, 10_000, EMPTY)


@pytest.fixture(scope="session")
def deploy() -> Callable[..., Deployment]:
    return make_deployment
