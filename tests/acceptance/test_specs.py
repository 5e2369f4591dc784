"""What users may write under `acceptance:`, and how mistakes are refused."""

from typing import Annotated

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from sim import theory
from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS, AcceptanceModel, Tape
from sim.acceptance.length import Length, minimum_variance_rates
from sim.acceptance.per_depth import PerDepth
from sim.acceptance.per_position import PerPosition
from sim.acceptance.profiles import load_profile, profile_names
from sim.acceptance.regime import Level, Regime, RegimeParameters

ADAPTER = TypeAdapter(Annotated[AcceptanceModel, ACCEPTANCE])
PARAMETERS = {
    "easy_logit": 2.0, "hard_logit": 0.0, "stay_easy": 0.8, "stay_hard": 0.9, "request_sd": 0.0,
    "keep": [0.8, 0.7], "rescue": [0.2, 0.1],
}  # fmt: skip
NGRAM = {
    "enter": {"a": 2, "b": 20}, "stay": {"a": 5, "b": 3}, "copula_rho": 0.4, "rescue": [0.1], "rejected_share": 0.07,
}  # fmt: skip


def refused(text, **spec):
    with pytest.raises(ValidationError, match=text):
        ADAPTER.validate_python(spec)


def test_all_kinds_are_there():
    assert set(ACCEPTANCE.members()) >= {
        "iid", "per_position", "per_depth", "length", "histogram", "regime", "ngram_markov", "sequence_replay",
    }  # fmt: skip


@pytest.mark.parametrize("rate", [-0.1, 1.0001, float("nan"), float("inf"), "0.7", None, True])
def test_rates_are_probabilities(rate):
    refused("rate", kind="iid", rate=rate)
    refused("rates", kind="per_depth", rates=[0.5, rate])
    refused("rates", kind="per_position", rates=[rate])


def test_end_points_and_whole_numbers_are_accepted():
    assert ADAPTER.validate_python({"kind": "iid", "rate": 1}).survival(3).tolist() == [1.0, 1.0, 1.0]
    assert ADAPTER.validate_python({"kind": "iid", "rate": 0}).survival(3).tolist() == [0.0, 0.0, 0.0]


def test_increasing_marginals_are_refused_with_a_hint():
    message = "rate 3 is 0.5 after 0.4; for conditional rates use kind `per_depth`"
    refused(message, kind="per_position", rates=[0.6, 0.4, 0.5])
    assert PerPosition(rates=(0.5, 0.5, 0.0, 0.0)).survival(4).tolist() == [0.5, 0.5, 0.0, 0.0]


def test_empty_and_endless_lists_are_refused():
    for kind in ("per_position", "per_depth"):
        refused("rates", kind=kind, rates=[])
        refused("rates", kind=kind, rates=[0.0] * (MAX_DRAFT_TOKENS + 1))


def test_unknown_kind_key_and_spread_are_refused():
    refused("kind", kind="idd", rate=0.5)
    refused("acceptance", kind="iid", rate=0.5, acceptance=3)
    refused("concentration", kind="iid", rate=0.5, request_spread={"kind": "beta", "concentration": 0})
    refused("sd", kind="iid", rate=0.5, request_spread={"kind": "logit_normal", "sd": -1})
    refused("request_spread", kind="regime", profile="gsm8k", request_spread={"kind": "logit_normal", "sd": 1})


def test_histogram_refuses():
    refused("cannot be negative, found -1", kind="histogram", counts=[3, -1])
    refused("must not all be zero", kind="histogram", counts=[0, 0])
    refused("counts", kind="histogram", counts=[3])
    assert ADAPTER.validate_python({"kind": "histogram", "counts": [1, 1, 2]}).survival(2).tolist() == [0.75, 0.5]


def test_per_depth_extends_only_when_told():
    assert PerDepth(rates=(0.6, 0.5)).max_supported_draft_tokens() == 2
    extended = PerDepth(rates=(0.6, 0.5), extend="last")
    assert extended.max_supported_draft_tokens() is None
    assert extended.survival(4) == pytest.approx([0.6, 0.3, 0.15, 0.075])


def test_length_geometric_and_minimum_variance():
    geometric = Length(tokens_per_step=2.9412, num_speculative_tokens=5)
    assert geometric.survival(5)[0] == pytest.approx(0.7, abs=1e-5)
    assert 1 + geometric.survival(5).sum() == pytest.approx(2.9412)
    assert geometric.max_supported_draft_tokens() is None
    least = Length(tokens_per_step=3.4, num_speculative_tokens=5, shape="min_variance")
    assert least.survival(5) == pytest.approx([1, 1, 0.4, 0, 0])
    assert least.max_supported_draft_tokens() == 5
    assert minimum_variance_rates(1.0, 2) == (0.0, 0.0)
    assert minimum_variance_rates(3.0, 2) == (1.0, 1.0)


def test_length_regime_meets_its_mean():
    model = Length(tokens_per_step=2.4, num_speculative_tokens=3, shape="regime", profile="sharegpt")
    assert 1 + model.survival(3).sum() == pytest.approx(2.4, abs=1e-6)
    assert model.max_supported_draft_tokens() == 16


@pytest.mark.parametrize("shape", ["geometric", "min_variance"])
def test_length_refuses_a_mean_out_of_reach(shape):
    spec = {"kind": "length", "num_speculative_tokens": 3, "shape": shape}
    refused(r"4\.2 is more than num_speculative_tokens \+ 1 = 4", **spec, tokens_per_step=4.2)
    refused("tokens_per_step", **spec, tokens_per_step=0.9)


def test_length_regime_needs_a_profile_and_others_take_none():
    mean = {"kind": "length", "tokens_per_step": 2.0, "num_speculative_tokens": 3}
    refused("needs a profile", **mean, shape="regime")
    refused("only that shape takes one", **mean, profile="gsm8k")
    refused("did you mean 'sharegpt'", **mean, shape="regime", profile="shargpt")


def test_regime_refuses():
    refused("either a profile or parameters", kind="regime")
    refused("either a profile or parameters", kind="regime", profile="gsm8k", parameters=PARAMETERS)
    refused("did you mean 'gsm8k'", kind="regime", profile="gsm8")
    refused("keep has 2 depths and rescue 1", kind="regime", parameters={**PARAMETERS, "rescue": [0.1]})
    refused("stay_easy", kind="regime", parameters={**PARAMETERS, "stay_easy": 1.2})
    refused("request_sd", kind="regime", profile="gsm8k", request_sd=-0.1)
    too_deep = {"tokens_per_step": 2.5, "num_speculative_tokens": 9}
    refused("covers 3 draft tokens", kind="regime", parameters=PARAMETERS, level=too_deep)
    refused("is more than", kind="regime", profile="gsm8k", level={"tokens_per_step": 5, "num_speculative_tokens": 3})


def test_regime_refuses_a_level_that_no_shift_reaches():
    dead = {**PARAMETERS, "keep": [0.0, 0.0], "rescue": [0.0, 0.0]}  # no second draft is ever accepted
    level = {"tokens_per_step": 2.5, "num_speculative_tokens": 3}
    refused("no shift of this profile gives 2.5", kind="regime", parameters=dead, level=level)


def test_ngram_refuses():
    refused("either a profile or parameters", kind="ngram_markov")
    refused("did you mean 'sharegpt'", kind="ngram_markov", profile="ShareGPT")
    refused("copula_rho", kind="ngram_markov", parameters={**NGRAM, "copula_rho": 1.2})
    refused("rejected_share", kind="ngram_markov", parameters={**NGRAM, "rejected_share": 2})
    assert ADAPTER.validate_python({"kind": "ngram_markov", "parameters": NGRAM}).max_supported_draft_tokens() == 2


@pytest.mark.parametrize("model", ["regime", "ngram"])
def test_shipped_profiles_name_their_source(model):
    assert profile_names(model) == ("gsm8k", "sharegpt")
    for name in profile_names(model):
        profile = load_profile(model, name)
        assert "SpecDecode-Bench" in profile["source"]
        assert profile["description"]


@pytest.mark.parametrize("profile", ["gsm8k", "sharegpt"])
@pytest.mark.parametrize(("tokens", "k"), [(1.3, 1), (2.0, 3), (3.3, 3), (4.0, 7)])
@pytest.mark.parametrize("sd", [None, 0.0, 1.0])
def test_level_is_met(profile, tokens, k, sd):
    model = Regime(profile=profile, level=Level(tokens_per_step=tokens, num_speculative_tokens=k), request_sd=sd)
    assert theory.tokens_from_survival(model.survival(k)) == pytest.approx(tokens, abs=1e-6)


def test_regime_degenerates_to_per_depth_and_iid():
    """No request effect and equal logits: rates by depth; keep = 1 and rescue = 0 as well: i.i.d."""
    flat = RegimeParameters(
        easy_logit=0.4, hard_logit=0.4, stay_easy=0.7, stay_hard=0.6, request_sd=0.0, keep=(1.0,) * 4, rescue=(0.0,) * 4
    )
    x = 1 / (1 + np.exp(-0.4))
    assert Regime(parameters=flat).survival(5) == pytest.approx(x ** np.arange(1, 6))
    mixed = flat.model_copy(update={"keep": (0.8, 0.7, 0.6, 0.5), "rescue": (0.2, 0.1, 0.3, 0.4)})
    conditional = [x] + [x * keep + (1 - x) * rescue for keep, rescue in zip(mixed.keep, mixed.rescue, strict=True)]
    assert Regime(parameters=mixed).survival(5) == pytest.approx(np.cumprod(conditional))


def test_tape_check_refuses_more_accepted_than_proposed():
    Tape(np.array([1], np.uint8), np.array([1], np.uint8)).check()
    with pytest.raises(ValueError, match="more drafts than it proposes"):
        Tape(np.array([2], np.uint8), np.array([1], np.uint8)).check()
