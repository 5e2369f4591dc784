import pytest

from sim.hardware.catalogue import find_gpu
from sim.scenario.engine import ONLY_VALUE, EngineArgs


@pytest.mark.parametrize(
    ("gpu", "tokens", "seqs"),
    [("h100-sxm", 8192, 1024), ("h200-sxm", 8192, 1024), ("a100-sxm-80gb", 2048, 256), ("l4", 2048, 256)],
)
def test_defaults_of_the_api_server_depend_on_the_gpu(gpu: str, tokens: int, seqs: int) -> None:
    engine = EngineArgs().resolved(find_gpu(gpu), 131072)
    assert (engine.max_num_batched_tokens, engine.max_num_seqs, engine.max_model_len) == (tokens, seqs, 131072)
    assert engine.max_num_scheduled_tokens == tokens


def test_stated_values_are_kept() -> None:
    stated = EngineArgs(max_num_seqs=7, max_num_batched_tokens=99, max_model_len=500, max_num_scheduled_tokens=50)
    assert stated.resolved(find_gpu("h100-sxm"), 131072) == stated.filled()


def test_defaults_follow_the_other_arguments() -> None:
    gpu = find_gpu("h100-sxm")
    assert EngineArgs(enable_chunked_prefill=False).resolved(gpu, 20_000).max_num_batched_tokens == 20_000
    assert EngineArgs(max_num_seqs=4).resolved(gpu, 100).max_num_batched_tokens == 400
    assert EngineArgs(max_num_batched_tokens=64).resolved(gpu, 100).max_num_seqs == 64
    assert EngineArgs().resolved(gpu).max_model_len == 8192


def test_no_key_is_of_two_kinds() -> None:
    fields = set(EngineArgs.model_fields)
    assert not fields & EngineArgs.no_effect_keys
    assert not set(ONLY_VALUE) & (fields | EngineArgs.no_effect_keys)
