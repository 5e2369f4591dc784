"""Engine profiles: complete, sourced, found by name."""

import pytest

from sim.errors import ScenarioError
from sim.hardware.engine_profile import EngineProfile, Measured, engine_ids, find_engine


def values(engine: EngineProfile) -> dict[str, Measured]:
    return {name: value for name, value in engine if isinstance(value, Measured)}


def test_shipped_engines():
    assert set(engine_ids()) == {
        "vllm",
        "vllm-0.10",
        "vllm-0.6",
        "sglang",
        "trtllm",
        "hf",
        "llamacpp",
        "magicdec",
        "none",
    }


@pytest.mark.parametrize("engine_id", engine_ids())
def test_every_value_says_where_it_is_from_and_how_sure_it_is(engine_id):
    engine = find_engine(engine_id)
    assert engine.id == engine_id
    assert engine.versions
    assert len(values(engine)) == 10 + (engine.per_draft_token_us is not None)
    for name, value in values(engine).items():
        assert value.source, name
        assert value.error > 0 or engine_id == "none", name
        if "not measured" in value.source:
            assert engine.caveats, f"{name} was not measured, so the profile needs a caveat"


def test_never_checked_means_a_caveat():
    for engine in map(find_engine, engine_ids()):
        assert engine.checked_batch or engine.caveats


def test_the_same_engine_may_not_read_kv_less_than_once():
    assert all(find_engine(engine_id).kv_reads.value >= 1 for engine_id in engine_ids())


def test_unknown_engines_suggest_the_nearest():
    with pytest.raises(ScenarioError, match="did you mean sglang"):
        find_engine("sg-lan")
