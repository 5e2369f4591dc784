"""The module that writes invented results lives with the tests of the report."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """The module that writes invented results."""
    path = Path(__file__).parents[1] / "report" / "synthetic.py"
    spec = importlib.util.spec_from_file_location("specsim_tests_synthetic", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
