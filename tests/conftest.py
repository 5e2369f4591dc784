"""Shared fixtures."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no-deadline")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The measured data beside the checkout; they are not part of the project, so tests that need them may skip."""
    path = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the measured data sets are not beside this checkout")
    return path
