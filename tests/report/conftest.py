"""Results folders with invented numbers, and the page built from one."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def _load_synthetic() -> ModuleType:
    path = Path(__file__).with_name("synthetic.py")
    spec = importlib.util.spec_from_file_location("specsim_tests_synthetic", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """The module that writes invented results."""
    return _load_synthetic()


@pytest.fixture(scope="session")
def sweep_dir(synthetic: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine concurrencies, three arms, five replicates. Shared: do not change it."""
    return synthetic.write_results(tmp_path_factory.mktemp("sweep"))


@pytest.fixture
def make(synthetic: ModuleType, tmp_path: Path) -> Callable[..., Path]:
    """Write a small results folder of one's own: `make(loads=..., ...)`."""

    def write(**options: object) -> Path:
        return synthetic.write_results(tmp_path, **{"loads": (1, 8, 64), "replicates": 3, **options})

    return write
