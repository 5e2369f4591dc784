"""Flip points of curves that are known exactly."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from sim.experiment.flips import TOLERANCE, Profile, find_flips

Gain = Callable[[float], float]


def profile_of(gain: Gain, spread: float = 0.0) -> tuple[Profile, list[float]]:
    """A profile over a known curve; replicates differ by fixed amounts around it."""
    asked: list[float] = []

    def gains(factor: float) -> dict[int, float]:
        asked.append(factor)
        return {r: gain(factor) + spread * shift for r, shift in enumerate((-1.0, -0.5, 0.5, 1.0))}

    return Profile(gains), asked


@pytest.mark.parametrize("root", [0.3, 0.95, 1.0001, 2.0, 3.9])
@pytest.mark.parametrize("shape", [lambda x: math.log(x), lambda x: 1 - 1 / x, lambda x: x**3 - 1])
def test_the_root_of_a_curve_is_found_with_few_points(root: float, shape: Gain) -> None:
    profile, asked = profile_of(lambda factor: -shape(factor / root))
    (flip,) = find_flips(profile, (0.25, 0.9, 1.0, 1.1, 4.0), 0.95)
    assert flip.factor == pytest.approx(root, rel=2 * TOLERANCE)
    assert flip.direction == "gain_to_loss"
    assert len(asked) == len(set(asked)) <= 5 + 10


def test_the_interval_is_that_of_the_replicates() -> None:
    """log2 speed-up falls with slope 1 in log2: replicates that are off by d flip at 2 exp(d)."""
    profile, _ = profile_of(lambda factor: math.log(2.0 / factor), spread=0.02)
    (flip,) = find_flips(profile, (0.25, 1.0, 4.0), 0.95)
    assert flip.factor == pytest.approx(2.0, rel=TOLERANCE)
    assert flip.ci_low is not None
    assert flip.ci_high is not None
    # t interval of four values -0.02, -0.01, 0.01, 0.02
    half = 3.182 * float(np.std([-0.02, -0.01, 0.01, 0.02], ddof=1)) / 2
    assert math.log(flip.ci_high / flip.ci_low) / 2 == pytest.approx(half, rel=0.25)
    assert flip.ci_low < 2.0 < flip.ci_high


def test_no_flip_and_two_flips() -> None:
    assert find_flips(profile_of(lambda factor: 0.1 + 0.0 * factor)[0], (0.25, 1.0, 4.0), 0.95) == ()
    both = find_flips(profile_of(lambda factor: 0.2 - math.log(factor) ** 2)[0], (0.25, 1.0, 4.0), 0.95)
    assert [flip.direction for flip in both] == ["loss_to_gain", "gain_to_loss"]
    edge = math.exp(math.sqrt(0.2))
    assert [flip.factor for flip in both] == pytest.approx([1 / edge, edge], rel=2 * TOLERANCE)


def test_a_flip_that_noise_hides_has_no_interval() -> None:
    (flip,) = find_flips(
        profile_of(lambda factor: 1e-3 * math.log(2.0 / factor), spread=1.0)[0], (0.25, 1.0, 4.0), 0.95
    )
    assert (flip.ci_low, flip.ci_high) == (None, None)
