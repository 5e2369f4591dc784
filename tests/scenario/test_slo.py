"""Published SLOs by name."""

import pytest

from sim.errors import ScenarioError
from sim.scenario.load import load_mapping
from sim.scenario.slo import find_slo, slo_ids

SMALL = {"hardware": "h100-sxm", "model": "llama-3.1-8b", "arms": {"plain": {}}}


def test_every_published_slo_has_limits_and_a_source() -> None:
    assert len(slo_ids()) >= 14
    for name in slo_ids():
        slo = find_slo(name)
        assert slo.source
        assert slo.ttft or slo.tpot or slo.e2el


def test_a_name_stands_for_its_limits() -> None:
    slo = load_mapping({**SMALL, "slo": "mlperf/llama3.1-8b-interactive"}).scenario.slo
    assert (slo.ttft, slo.tpot, slo.e2el, slo.percentile) == (500, 30, None, 99)


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(ScenarioError, match=r"slo: unknown SLO 'mlperf/llama3.1-9b'; did you mean mlperf-llama3.1-8b"):
        load_mapping({**SMALL, "slo": "mlperf/llama3.1-9b"})
