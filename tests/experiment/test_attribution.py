"""Factors found by least squares: exact laws give back their factors, and what cannot be told apart is said."""

import numpy as np
import pytest

from sim.experiment.attribution import LIMITS, Observations, attribute

#: Sensitivities of eight figures of four load tests to three factors.
EFFECTS = {
    "a": np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]),
    "b": np.array([0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
    "c": np.zeros(8),
}
GROUPS = [0, 0, 1, 1, 2, 2, 3, 3]


def observed(logs, sigma=0.02):
    return Observations(np.asarray(logs), np.full(8, sigma), GROUPS)


def power_law(effects):
    """Predictions that follow powers of the factors."""
    return lambda factors: sum(np.log(value) * effects[name] for name, value in factors.items())


def curved(effects):
    """The same with an effect that grows with the factor: slopes at 1 miss it."""
    return lambda factors: sum(
        (np.log(value) + np.log(value) ** 2) * effects[name] for name, value in factors.items()
    )  # fmt: skip


@pytest.mark.parametrize("law", [power_law, curved])
def test_a_single_factor_is_recovered(law):
    respond = law(EFFECTS)
    found = attribute(observed(respond({"a": 1.4})), EFFECTS, respond)
    assert (found.alike, found.pair_needed, found.explained) == (["a"], False, True)
    value = found.best.factors["a"]
    assert value.estimate == pytest.approx(1.4, rel=3e-3)  # steps below 0.2 % end the search
    assert value.low < 1.4 < value.high
    assert found.without_effect == ["c"]


def test_two_factors_are_told_apart_when_both_are_off():
    respond = power_law(EFFECTS)
    found = attribute(observed(respond({"a": 1.3, "b": 0.7})), EFFECTS, respond)
    assert found.pair_needed
    values = {name: interval.estimate for name, interval in found.best.factors.items()}
    assert values == pytest.approx({"a": 1.3, "b": 0.7}, rel=1e-3)


def test_factors_that_do_the_same_are_not_distinguished():
    effects = {"a": EFFECTS["a"], "twin": 0.5 * EFFECTS["a"]}
    respond = power_law(effects)
    found = attribute(observed(respond({"a": 1.2})), effects, respond)
    assert sorted(found.alike) == ["a", "twin"]
    assert found.pair is None
    twin = next(fit for fit in found.singles if "twin" in fit.factors)
    assert twin.factors["twin"].estimate == pytest.approx(1.44, rel=1e-3)


def test_nothing_is_explained_where_nothing_is_off():
    respond = power_law(EFFECTS)
    found = attribute(observed(np.zeros(8)), EFFECTS, respond)
    assert (found.alike, found.best, found.explained) == ([], found.before, True)


def test_what_no_factor_does_stays_unexplained():
    respond = power_law(EFFECTS)
    found = attribute(observed([0.5, -0.5] * 4), EFFECTS, respond)
    assert not found.explained
    beyond = attribute(observed(respond({"a": 30.0})), {"a": EFFECTS["a"]}, respond)
    assert beyond.best.at_limit
    assert not beyond.explained
    assert beyond.best.factors["a"].estimate == pytest.approx(LIMITS[1])


def test_what_would_not_show_is_as_large_as_what_is_taken_for_chance():
    """A factor just above it is needed, one just below is not."""
    respond = power_law(EFFECTS)
    unseen = attribute(observed(np.zeros(8)), EFFECTS, respond).unseen
    assert unseen.keys() == {"a", "b"}
    assert unseen["a"] == pytest.approx(np.expm1(np.sqrt(3.84) * 0.02 / np.linalg.norm(EFFECTS["a"])))
    for share, needed in ((1.05, ["a"]), (0.95, [])):
        found = attribute(observed(respond({"a": 1 + share * unseen["a"]})), {"a": EFFECTS["a"]}, respond)
        assert found.alike == needed


def test_one_load_test_gives_no_interval():
    found = attribute(
        Observations(np.log([1.3]), np.array([0.02]), [0]), {"a": np.ones(1)}, power_law({"a": np.ones(1)})
    )
    assert found.best.factors["a"].estimate == pytest.approx(1.3)
    assert found.best.factors["a"].low is None


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Noise of the stated size: 95 % of 400 intervals, within three binomial sigma (3.3 %)."""
    rng, respond = np.random.default_rng(5), power_law(EFFECTS)
    held = 0
    for _ in range(400):
        logs = respond({"a": 1.2}) + rng.normal(0.0, 0.02, 8)
        fits = attribute(observed(logs), {"a": EFFECTS["a"]}, respond).singles
        interval = fits[0].factors["a"]
        held += interval.low <= 1.2 <= interval.high
    assert held / 400 >= 0.95 - 0.033
