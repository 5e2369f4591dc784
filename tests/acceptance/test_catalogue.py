"""Published acceptance: every entry is usable, keeps its figures and names its source."""

import json

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from sim.acceptance.catalogue import WOBBLE_TOKENS, CatalogueEntry, entries, marginal_from_means
from sim.acceptance.spread import LogitNormalSpread
from sim.cli.catalog import catalog


@pytest.mark.parametrize("entry", entries().values(), ids=lambda entry: entry.id)
def test_an_entry_says_what_was_published(entry):
    """Means by K within the stated wobble; block drafters and single means exactly."""
    model = CatalogueEntry(id=entry.id)
    assert entry.source
    if entry.rates is not None:
        assert model.survival(len(entry.rates)) == pytest.approx(entry.rates)
        return
    for k, mean in entry.tokens_by_k.items():
        smoothed = entry.separable and len(entry.tokens_by_k) > 1
        assert 1 + model.survival(k).sum() == pytest.approx(mean, abs=WOBBLE_TOKENS if smoothed else 1e-5)


def test_golden_lengths_are_those_of_the_source(shared_data):
    import csv

    with (shared_data / "acceptance" / "golden_acceptance_length.csv").open() as file:
        rows = [(r["model"], r["method"], int(r["num_speculative_tokens"]), float(r["mean_acceptance_length"]))
                for r in csv.DictReader(file)]  # fmt: skip
    shipped = [
        (entry.model, entry.method, k, mean)
        for entry in entries().values()
        if "InferenceX" in entry.source
        for k, mean in entry.tokens_by_k.items()
    ]
    assert sorted(rows) == sorted(shipped)


def test_presets_are_marked_inferred():
    assert all(entry.inferred == entry.id.startswith("preset-") for entry in entries().values())


def test_differences_of_means_are_marginal_rates():
    exact = {1: 1.83, 2: 2.43, 3: 2.88, 4: 3.24}
    assert marginal_from_means(exact) == pytest.approx((0.83, 0.60, 0.45, 0.36), abs=1e-6)


def test_a_table_that_shrinks_with_k_is_smoothed_or_refused():
    rates = marginal_from_means({1: 1.8, 2: 2.4, 3: 2.35})
    assert list(rates) == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(ValueError, match="table_by_k"):
        marginal_from_means({1: 1.8, 2: 2.6, 3: 2.1})
    with pytest.raises(ValueError, match="every K from 1"):
        marginal_from_means({1: 1.8, 3: 2.1})


def test_spread_only_where_there_are_rates():
    spread = LogitNormalSpread(sd=0.4)
    assert CatalogueEntry(id="kimi-k2.5-nvfp4-eagle3", request_spread=spread).model().request_spread == spread
    with pytest.raises(ValidationError, match="takes no request_spread"):
        CatalogueEntry(id="preset-eagle3-chat", request_spread=spread)


def test_names():
    assert CatalogueEntry(id="Kimi_K2-5 nvfp4 eagle3").entry().id == "kimi-k2.5-nvfp4-eagle3"
    with pytest.raises(ValidationError, match="did you mean preset-eagle3-chat"):
        CatalogueEntry(id="preset-eagle3-chats")


def test_the_command_lists_every_entry_with_its_figures():
    found = json.loads(CliRunner().invoke(catalog, ["acceptance", "--json"], catch_exceptions=False).output)
    assert [entry["id"] for entry in found] == list(entries())
    assert all({"tokens_per_step", "acceptance_rate", "alpha", "source", "basis"} <= entry.keys() for entry in found)
    text = CliRunner().invoke(catalog, ["acceptance", "preset-weak-head"], catch_exceptions=False).output
    assert "inferred" in text
