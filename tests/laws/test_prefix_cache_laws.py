"""Laws of prefix caching on the whole server: stepping, leaping, overlapped; on, off and unlimited."""

import dataclasses
import runpy
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

h = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("server_harness.py"))))

CACHED = dataclasses.replace(h.ROOMY, enable_prefix_caching=True)


def tight(seed: int) -> dict[str, object]:
    return {"enable_prefix_caching": True, "use_eagle": seed % 3 == 0}


@pytest.mark.parametrize("seed", range(40))
def test_leaping_is_bit_identical_to_stepping(seed: int) -> None:
    w = h.sharing(h.workload(seed, prompt=90), seed)
    limits = dataclasses.replace(h.config(seed), long_prefill_token_threshold=0, max_model_len=4096, **tight(seed))
    users = 6 if seed % 2 else 0
    leaping, stepping = (h.serve(w, limits, users=users, leap=leap) for leap in (True, False))
    assert h.digest(leaping) == h.digest(stepping)
    assert leaping.evictions == stepping.evictions


def test_the_leap_test_meets_hits_evictions_and_preemptions() -> None:
    runs = [
        h.serve(
            h.sharing(h.workload(seed, prompt=90), seed),
            dataclasses.replace(h.config(seed), max_model_len=4096, **tight(seed)),
        )
        for seed in range(40)
    ]
    assert sum(run.requests.cached_tokens.sum() > 0 for run in runs) > 20
    assert sum(run.evictions > 0 for run in runs) > 5
    assert sum(run.requests.num_preemptions.sum() > 0 for run in runs) > 5


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_caching_changes_nothing_where_nothing_is_shared(seed: int, overlapped: bool) -> None:
    """Byte for byte, as long as nobody is preempted (who then finds his own blocks)."""
    w = h.workload(seed)
    on, off = (h.serve(w, limits, users=8, overlapped=overlapped) for limits in (CACHED, h.ROOMY))
    assert h.digest(on) == h.digest(off)


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_overlapped_runs_hit_as_well(seed: int, overlapped: bool) -> None:
    w = h.sharing(h.workload(seed, prompt=90), seed)
    limits = dataclasses.replace(h.config(seed), long_prefill_token_threshold=0, max_model_len=4096, **tight(seed))
    run = h.serve(w, limits, users=6, overlapped=overlapped)
    assert run.requests.emitted_tokens.tolist() == w.table.output_tokens.tolist()
    hits = run.requests.cached_tokens
    assert (hits % limits.block_size == 0).all()
    assert (hits < w.table.prompt_tokens).all()
    assert (run.steps.kv_blocks_used <= limits.num_blocks).all()


def one_at_a_time(w: SimpleNamespace, **limits: object) -> np.ndarray:
    """Tokens found by each request when every request waits for the one before it."""
    return h.serve(w, dataclasses.replace(CACHED, **limits), users=1).requests.cached_tokens


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("seed", range(6))
def test_an_unlimited_cache_finds_all_that_is_shared(seed: int, block_size: int) -> None:
    w = h.sharing(h.workload(seed, prompt=90), seed)
    found = one_at_a_time(w, block_size=block_size)
    table, prefixes = w.table, w.table.prefixes
    # Emitted tokens are cached when the next step is scheduled: the last chunk of an output never is.
    whole = prefixes.tokens <= table.prompt_tokens[prefixes.parent]
    blocks = np.minimum(prefixes.tokens // block_size, (table.prompt_tokens - 1) // block_size)
    assert (found[whole] >= blocks[whole] * block_size).all()
    assert found.sum() > 0


@pytest.mark.parametrize("seed", range(6))
def test_a_larger_pool_never_finds_less_when_requests_come_one_by_one(seed: int) -> None:
    """LRU has the inclusion property: without preemption and with one request at a time, more blocks keep more."""
    w = h.sharing(h.workload(seed, n=60, prompt=90), seed)
    found = [one_at_a_time(w, block_size=4, num_blocks=n) for n in (36, 48, 64, 96, 160, 10_000)]
    for fewer, more in pairwise(found):
        assert fewer.sum() <= more.sum()
    assert found[0].sum() < found[-1].sum()


@pytest.mark.parametrize("seed", range(6))
def test_an_eagle_like_drafter_loses_one_block_per_hit(seed: int) -> None:
    w = h.sharing(h.workload(seed, prompt=90), seed)
    kept, dropped = (one_at_a_time(w, block_size=4, use_eagle=eagle) for eagle in (False, True))
    assert (dropped <= kept).all()
    assert (kept - dropped <= 4).all()
    assert (dropped < kept).any()


def test_hits_save_time_and_blocks() -> None:
    w = h.sharing(h.workload(3, n=60, prompt=200), 3)
    on, off = (h.serve(w, limits, users=8, cost=h.LinearCost(token_ns=200_000)) for limits in (CACHED, h.ROOMY))
    assert on.steps.num_tokens.sum() < off.steps.num_tokens.sum()
    saved = int(off.steps.prefill_tokens.sum() - on.steps.prefill_tokens.sum())
    ones = int((on.requests.cached_tokens == w.table.prompt_tokens - 1).sum())  # one token left counts as decode
    assert saved - ones <= int(on.requests.cached_tokens.sum()) <= saved + ones
    assert on.steps.kv_blocks_used.max() < off.steps.kv_blocks_used.max()


def test_a_preempted_request_finds_its_own_blocks_again() -> None:
    w = h.workload(1, n=30, prompt=120, output=60)
    limits = dataclasses.replace(h.ROOMY, block_size=4, num_blocks=110)
    on, off = (
        h.serve(w, dataclasses.replace(limits, enable_prefix_caching=caching), users=12) for caching in (True, False)
    )
    assert on.requests.num_preemptions.sum() > 0
    assert (on.requests.cached_tokens == 0).all()
    assert 0 <= on.requests.recomputed_tokens.sum() < off.requests.recomputed_tokens.sum()
