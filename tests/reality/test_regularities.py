"""Regularities that published measurements show (docs/background/cost-model.md), held against the shipped profiles.

Nothing is tuned here. Tolerances are the precision of the sources. Where the shipped parameters miss a regularity, the
test says by how much and is expected to fail; `make reality` prints all figures. Engines are named by their profile:
`vllm-0.10` and `sglang` were fitted to some of these very cells (in-sample, said where it is so); kernels never were.

r = tokens per step / speed-up = cost of one speculative step in units of a plain step at the same batch.
"""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sim.acceptance.base import ACCEPTANCE
from sim.cost.passes import plain_pass, prefill_pass, verify_pass
from sim.cost.stack import RooflineCost
from sim.rng import Streams
from sim.scenario.build import ArmSetup, set_up
from sim.scenario.load import load_mapping
from sim.speculation.base import DraftWork
from sim.theory.crossings import crossings
from sim.theory.tokens import expected_tokens
from sim.validation.harness.steps import step_times
from sim.workload.requests import RequestTable

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
POINTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
#: GSM8K in SpecDecode-Bench (arXiv 2601.11580): prompt and output tokens.
PROMPT, OUTPUT = 94, 166


@cache
def arm(
    gpu: str, model: str, engine: str, method: str | None = "eagle3", k: int = 7, tp: int = 1, **cost: str
) -> ArmSetup:
    arms: dict[str, object] = {"plain": {}}
    if method:
        spec = {"method": method, "num_speculative_tokens": k}
        arms["spec"] = {"speculative_config": spec, "acceptance": {"kind": "iid", "rate": 0.5}}
    scenario = load_mapping(
        {
            "hardware": gpu, "model": model, "cost_model": {"kind": "roofline", "engine": engine, **cost}, "arms": arms,
            "baseline": "plain",
            "engine": {"tensor_parallel_size": tp, "num_gpu_blocks_override": 10**6, "max_num_seqs": 512},
            "workload": {
                "arrivals": {"kind": "closed", "max_concurrency": 1},
                "prompt_tokens": {"kind": "fixed", "value": 10}, "output_tokens": {"kind": "fixed", "value": 10},
            },
        }
    ).scenario  # fmt: skip
    return set_up(scenario, "spec" if method else "plain", Path())


def plain_s(setup: ArmSetup, batch: int, context: int) -> float:
    """A plain decode step, host included."""
    return setup.cost.target.price(plain_pass(batch, context)).seconds + setup.cost.host.seconds(batch)


def step_s(setup: ArmSetup, batch: int, context: int, k: int, passes: int | None = None) -> float:
    """A speculative step that verifies `k` drafts, with `passes` passes of the drafter (default k)."""
    forward = verify_pass(batch, context, k)
    draft_s = setup.drafter.draft_seconds(DraftWork(forward, batch, batch * context, k if passes is None else passes))
    return setup.cost.target.price(forward).seconds + setup.cost.host.seconds(batch) + draft_s


def ratio(setup: ArmSetup, batch: int, context: int, k: int) -> float:
    return step_s(setup, batch, context, k) / plain_s(setup, batch, context)


def verify_ratio(cost: RooflineCost, batch: int, context: int, k: int) -> float:
    return cost.price(verify_pass(batch, context, k)).seconds / cost.price(plain_pass(batch, context)).seconds


def missed(gap: str) -> pytest.MarkDecorator:
    """The shipped parameters do not reproduce this, by so much; a test that comes to pass has to lose the mark."""
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=gap)


def shown(title: str, *rows: tuple[str, list[float]]) -> None:
    print(f"\n{title}")
    for name, values in rows:
        print(f"  {name:38s}", " ".join(f"{value:7.3f}" for value in values))


# Verification is nearly free at small batch -------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm", "b200-sxm"])
@pytest.mark.parametrize(("model", "tp"), [("llama-3.1-8b", 1), ("qwen3-8b", 1), ("llama-3.1-70b", 4)])
def test_verification_is_nearly_free_at_batch_one_for_dense_models(gpu, model, tp):
    """Measured 1.05 +- 0.03 on H100: time shares 65 % of r = 1.37 and 85 % of a plain step, rounded to per cents."""
    setup = arm(gpu, model, "vllm-0.10", k=3, tp=tp)
    found = [verify_ratio(setup.cost.target, batch, 177, 3) for batch in (1, 4, 8)]
    shown(f"verify / plain, K = 3, {model} on {gpu}, batch 1 4 8", ("ours", found))
    assert 1.0 < found[0] <= 1.08
    assert found[0] < found[1] < found[2] < 1.25


# r is linear in K at batch 1 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sglang", "vllm", "vllm-0.10"])
def test_r_is_linear_in_k_at_batch_one(engine):
    ks = np.arange(1, 8)
    found = [ratio(arm("h200-sxm", "llama-3.1-8b", engine), 1, 300, k) for k in ks.tolist()]
    slope, intercept = np.polyfit(ks, found, 1)
    shown(f"r(K) = {intercept:.3f} + {slope:.3f} K, H200, {engine}", ("K = 1..7", found))
    assert np.abs(np.polyval([slope, intercept], ks) - found).max() < 0.01
    assert slope > 0.04


@pytest.mark.parametrize(("k", "measured", "sd"), [(3, 1.37, 0.04), (5, 1.51, 0.03), (7, 1.64, 0.03)])
def test_r_of_specbundle(k, measured, sd):
    """H200, SGLang, two heads x three data sets: 1.17 + 0.068 K (engine profile: in-sample; kernels: transferred)."""
    found = ratio(arm("h200-sxm", "llama-3.1-8b", "sglang"), 1, 300, k)
    shown(f"r at K = {k}", ("ours, measured, sd", [found, measured, sd]))
    assert found == pytest.approx(measured, abs=sd)


# r against the batch ------------------------------------------------------------------------------------------------


def prefill_s(setup: ArmSetup, batch: int) -> float:
    """All prompts of a batch of clones, as many whole ones per step as the token budget holds."""
    whole, rest = divmod(batch, 8192 // PROMPT)
    total = 0.0
    for count, times in ((8192 // PROMPT, whole), (rest, 1)):
        if count and times:
            forward = prefill_pass(PROMPT, batch=count)
            work = DraftWork(forward, count, count * PROMPT, setup.arm.speculative_config.max_draft_tokens)
            one = setup.cost.target.price(forward).seconds + setup.cost.host.seconds(count)
            total += times * (one + setup.drafter.draft_seconds(work))
    return total


def measured_like_r(batch: int, tokens_per_step: float, speculative_s: float, spec: ArmSetup, plain: ArmSetup) -> float:
    """r as the benchmark's figures give it: its timer spans the prefill, which both arms pay."""
    decode_s = (OUTPUT - 1) * plain_s(plain, batch, PROMPT + OUTPUT // 2)
    steps = (OUTPUT - 1) / tokens_per_step
    return tokens_per_step * (prefill_s(spec, batch) + steps * speculative_s) / (prefill_s(plain, batch) + decode_s)


#: Speed-ups are read to 0.005; the mean accepted length is a replay's mean over requests, not the timed run's: 2 %.
SDB_PRECISION = 0.03


@pytest.mark.parametrize(
    ("batch", "speedup"),
    [
        (1, 1.749),
        (16, 1.699),
        (64, 1.486),
        pytest.param(
            128,
            1.222,
            marks=pytest.mark.xfail(
                strict=True, raises=AssertionError, reason="ours 2.04, measured 1.96: 4 % too dear"
            ),
        ),
    ],
)
def test_r_of_eagle3_against_batch(batch, speedup):
    """SpecDecode-Bench, Llama-3.1-8B, H100, K = 3, 2.40 tokens a step (engine profile: in-sample)."""
    spec, plain = (arm("h100-sxm", "llama-3.1-8b", "vllm-0.10", method, k=3) for method in ("eagle3", None))
    step = step_s(spec, batch, PROMPT + OUTPUT // 2, 3)
    found, measured = measured_like_r(batch, 2.40, step, spec, plain), 2.40 / speedup
    shown(f"EAGLE-3 r at batch {batch}", ("ours, measured", [found, measured]))
    assert found == pytest.approx(measured, rel=SDB_PRECISION)


@cache
def ngram_gsm8k() -> tuple[float, float]:
    """Tokens per step and share of the steps that draft, K = 3, from the shipped n-gram profile for GSM8K."""
    model = ACCEPTANCE.members()["ngram_markov"](profile="gsm8k")
    rows = 400
    zeros = np.zeros(rows, np.int64)
    table = RequestTable(zeros, zeros + PROMPT, zeros + OUTPUT, zeros, np.ones(rows, bool))
    tape = model.tape(table, 3, Streams(0))
    steps, drafting, tokens = 0, 0, 0
    for row in range(rows):
        position, end = int(table.output_offset[row]) + 1, int(table.output_offset[row]) + OUTPUT
        while position < end:
            steps, drafting = steps + 1, drafting + int(tape.proposed[position] > 0)
            emitted = min(1 + int(tape.accepted[position]), end - position)
            tokens, position = tokens + emitted, position + emitted
    return tokens / steps, drafting / steps


@pytest.mark.parametrize(("batch", "speedup"), [(1, 1.166), (16, 1.149), (64, 1.103), (128, 1.047)])
def test_r_of_ngram_against_batch(batch, speedup):
    """The batch is clones of one prompt: all of them draft in a step, or none does."""
    spec, plain = (arm("h100-sxm", "llama-3.1-8b", "vllm-0.10", method, k=3) for method in ("ngram", None))
    tokens, share = ngram_gsm8k()
    context = PROMPT + OUTPUT // 2
    step = share * step_s(spec, batch, context, 3) + (1 - share) * step_s(spec, batch, context, 0)
    found, measured = measured_like_r(batch, tokens, step, spec, plain), 1.16 / speedup
    shown(f"n-gram r at batch {batch}; {tokens:.2f} tokens, {share:.2f} draft", ("ours, measured", [found, measured]))
    assert found == pytest.approx(measured, rel=SDB_PRECISION)


# Mixtures of experts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "tp", "dear", "covered"), [("mixtral-8x7b", 2, (1, 2), 8), ("qwen3-30b-a3b", 1, (1, 2, 4, 8), 64)]
)
def test_experts_make_verification_dear_at_small_batch_and_relatively_cheap_at_large(model, tp, dear, covered):
    """Clearly above the dense value until the experts are covered, then below it, and falling relative to it."""
    moe, dense = arm("h100-sxm", model, "vllm", tp=tp), arm("h100-sxm", "llama-3.1-8b", "vllm")
    found = {b: (ratio(moe, b, 300, 3), ratio(dense, b, 300, 3)) for b in BATCHES}
    relative = {b: a / c for b, (a, c) in found.items()}
    shown(
        f"r of {model}, K = 3, H100, batch {' '.join(map(str, BATCHES))}",
        ("experts", [a for a, _ in found.values()]), ("dense", [c for _, c in found.values()]),
        ("relative", list(relative.values())),
    )  # fmt: skip
    assert all(relative[b] > 1.3 for b in dear)
    assert all(relative[b] < 1.0 for b in BATCHES if b >= covered)
    falling = [relative[b] for b in BATCHES if dear[-1] <= b <= 256]
    assert all(later < earlier for earlier, later in pairwise(falling))
    assert found[256][0] < found[1][0]  # so the speed-up of experts falls less with the batch, or rises


def test_mixtral_with_eagle_at_batch_one():
    """EAGLE (arXiv 2401.15077, table 3): 3.25 tokens a step but 1.50 times, r = 2.17, where dense models have 1.2.

    A prototype harness, an unnamed GPU (two A100 here) and a static tree of 25 drafts: 20 %.
    """
    found = {}
    for model, tp in (("mixtral-8x7b", 2), ("llama-2-70b", 4)):
        setup = arm("a100-sxm-80gb", model, "hf", method="eagle", tp=tp)
        found[model] = step_s(setup, 1, 300, 25, passes=5) / plain_s(setup, 1, 300)
    shown("r at batch 1, 25 drafts", ("Mixtral, Llama-2-70B, measured Mixtral", [*found.values(), 3.25 / 1.50]))
    assert found["mixtral-8x7b"] == pytest.approx(3.25 / 1.50, rel=0.2)
    assert found["llama-2-70b"] < 1.4


# A research loop's model alone ---------------------------------------------------------------------------------------

#: gpt-fast's README (0f925b5): tokens/s at batch 1 in 16 bits on 1, 2, 4 and 8 A100-80GB, limited to 330 W.
GPT_FAST = {"llama-2-7b": {1: 104.9, 2: 168.84, 4: 254.02, 8: 328.43}, "llama-2-70b": {2: 21.32, 4: 38.01, 8: 62.5}}


@pytest.mark.parametrize(("model", "tp"), [(model, tp) for model, by_tp in GPT_FAST.items() for tp in by_tp])
def test_a_compiled_loop_takes_what_its_kernels_take(model, tp):
    """No host time and no slow all-reduces in gpt-fast itself; so what MagicDec adds to it is its own. 8 %."""
    found = 1.0 / plain_s(arm("a100-sxm-80gb", model, "none", None, tp=tp), 1, 100)
    shown(f"{model} on {tp}, tokens/s", ("ours, measured", [found, GPT_FAST[model][tp]]))
    assert found == pytest.approx(GPT_FAST[model][tp], rel=0.08)


# Long context flips the trend ---------------------------------------------------------------------------------------

#: MagicDec (arXiv 2408.11049, table 3), 8 A100, gamma = 2: context -> (batch, T_verify / T_plain).
MAGIC_MHA = {
    1024: ((32, 9.55 / 8.27), (64, 13.05 / 10.83), (128, 18.87 / 14.02)),
    4000: ((32, 13.21 / 11.89), (64, 21.83 / 19.28), (128, 33.82 / 28.77)),
    8000: ((32, 18.4 / 16.53), (64, 34.32 / 31.49), (128, 53.78 / 49.89)),
    16000: ((32, 27.79 / 26.28), (64, 58.14 / 55.08)),
}
MAGIC_GQA = {
    4000: ((32, 10.32 / 8.83), (128, 19.77 / 13.42)),
    8000: ((32, 11.34 / 9.90), (128, 24.84 / 18.53)),
    16000: ((32, 14.0 / 11.93), (128, 34.82 / 28.0)),
    32000: ((32, 19.04 / 17.13), (128, 54.98 / 47.24)),
    64000: ((32, 28.88 / 26.96),),
    100000: ((32, 39.84 / 37.70),),
}
#: Tolerance on T_verify / T_plain (times printed to 0.01 ms; kernels of another library).
MAGIC_TOLERANCE = 0.08


@cache
def magic(model: str) -> ArmSetup:
    """As MagicDec measured: 8 A100, its own loop, kernels that pack the query heads, sequences of one length.

    Its host time was fitted to plain steps of Llama-2-7B alone, nothing to verification.
    """
    return arm("a100-sxm-80gb", model, "magicdec", None, tp=8, attention_kernel="packed", attention_waves="count")


def worst_gap(model: str, measured: dict) -> float:
    worst = 0.0
    for context, cells in measured.items():
        found = [step_times(magic(model), batch, context, 2).ratio for batch, _ in cells]
        shown(f"T_verify/T_plain, {model}, {context}", ("ours", found), ("measured", [v for _, v in cells]))
        worst = max(worst, *(abs(f - v) for f, (_, v) in zip(found, cells, strict=True)))
    return worst


def test_magicdec_verification_with_multi_head_attention():
    assert worst_gap("llama-2-7b", MAGIC_MHA) <= MAGIC_TOLERANCE


@missed("up to 0.084 too cheap (4k, B = 128: 1.39, not 1.47): plain steps 4 % too dear, verification within 2 %")
def test_magicdec_verification_with_grouped_queries():
    assert worst_gap("llama-3.1-8b", MAGIC_GQA) <= MAGIC_TOLERANCE


def test_the_attention_kernel_decides_on_a100():
    """What vLLM's FlashAttention-2 does instead: 128 sequences of 4k tokens cost twice a plain step to verify."""
    alone = {
        kernel: arm("a100-sxm-80gb", "llama-3.1-8b", "none", None, tp=8, attention_kernel=kernel) for kernel in KERNELS
    }
    own, packed = (step_times(alone[kernel], 128, 4000, 2).ratio for kernel in KERNELS)
    assert packed < 1.47 < 1.8 < own


KERNELS = ("auto", "packed")


def gain_from_batch(model: str, context: int, draft_ms: dict[int, float]) -> float:
    """Log of speed-up at batch 128 over that at 32, gamma = 2; tokens per step cancel."""

    def cost_of(batch: int) -> float:
        times = step_times(magic(model), batch, context, 2)
        return (times.step_ms + 2 * draft_ms[batch]) / times.plain_ms

    return float(np.log(cost_of(32) / cost_of(128)))


def turn(model: str, draft_ms: dict[int, float]) -> float | None:
    """Context from which the speed-up rises with the batch."""
    contexts = np.unique(np.geomspace(256, 131_072, 60).astype(int)).tolist()
    found = crossings(contexts, [gain_from_batch(model, c, draft_ms) for c in contexts])
    print(f"\nturn of {model}: {[(round(c.value), c.direction) for c in found]}")
    return next((c.value for c in found if c.direction == "starts_paying"), None)


#: One pass of TinyLlama with 512 tokens of KV as measured there (half of gamma T_draft at 1024).
TINYLLAMA_MS = {32: 8.21 / 2, 128: 12.04 / 2}
#: One pass of the target itself with 512 tokens of KV (half of gamma T_draft at 8000).
SELF_MS = {32: 13.28 / 2, 128: 23.59 / 2}


def test_where_the_trend_turns_for_multi_head_attention():
    """Measured between 1k (0.95 -> 0.94) and 4k (1.13 -> 1.32); the drafter's pass is the measured one."""
    at = turn("llama-2-7b", TINYLLAMA_MS)
    assert at is not None
    assert 1000 <= at <= 4000


@pytest.mark.parametrize(("context", "measured"), [(4000, 1.32 / 1.13), (8000, 1.60 / 1.27)])
def test_speedup_rises_with_the_batch_at_long_context_for_multi_head_attention(context, measured):
    """From batch 32 to 128; the sign, and the size within a tenth (speed-ups are printed to 0.01)."""
    gain = float(np.exp(gain_from_batch("llama-2-7b", context, TINYLLAMA_MS)))
    shown(f"MHA speed-up at 128 / at 32, {context} tokens", ("ours, measured", [gain, measured]))
    assert gain > 1
    assert gain == pytest.approx(measured, rel=0.1)


@missed("ours turns at 7.5k, measured 8k to 16k: plain steps of 128 sequences are 5 % too dear")
def test_the_trend_turns_for_grouped_queries():
    """Self-speculation with 512 tokens of KV, Llama-3.1-8B, passes as measured: 8k .95 -> .93, 16k .99 -> 1.10."""
    at = turn("llama-3.1-8b", SELF_MS)
    assert at is not None
    assert 8000 <= at <= 16_000


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm", "b200-sxm"])
def test_long_context_makes_the_speedup_rise_with_the_batch(gpu):
    """Sign only, over batches whose KV fits one H100: r falls with the batch at 16k tokens, rises at 256."""
    setup, batches = arm(gpu, "llama-3.1-8b", "vllm"), (2, 6, 12, 24)
    trend = {c: [ratio(setup, b, c, 3) for b in batches] for c in (256, 1024, 4096, 16_384)}
    for context, values in trend.items():
        shown(f"r on {gpu}, K = 3, {context} tokens, batch {batches}", ("ours", values))
    assert all(later > earlier for earlier, later in pairwise(trend[256]))
    assert all(later < earlier for earlier, later in pairwise(trend[16_384]))
    growth = [values[-1] / values[0] for values in trend.values()]
    assert all(later < earlier for earlier, later in pairwise(growth))


# Best K, wide verification, useless drafts --------------------------------------------------------------------------


def without_tiles(setup: ArmSetup) -> ArmSetup:
    """Rows priced alike whether or not they fill a tile: with whole tiles a K that fills them may come back."""
    target = setup.cost.target
    assert isinstance(target, RooflineCost)
    gemms = [rate._replace(tile_rows=1) for rate in target.parts.gemms]
    head = target.parts.lm_head._replace(tile_rows=1)
    smooth = RooflineCost(replace(target.parts, gemms=gemms, lm_head=head), target.engine)
    return replace(setup, cost=replace(setup.cost, target=smooth))


def best_ks(gpu: str, engine: str, context: int, rate: float) -> list[int]:
    """K = 0..7 with the most tokens per second, by batch; without padding to tiles, as the regularity is stated."""
    setup, best = without_tiles(arm(gpu, "llama-3.1-8b", engine)), []
    for batch in POINTS:
        speed = [1.0 / plain_s(setup, batch, context)]
        speed += [expected_tokens(rate, k) / step_s(setup, batch, context, k) for k in range(1, 8)]
        best.append(int(np.argmax(speed)))
    print(f"\nbest K, {gpu}, {engine}, {context} tokens, rate {rate}: {best}")
    return best


@pytest.mark.parametrize("rate", [0.5, 0.6, 0.7, 0.8, 0.9])
@pytest.mark.parametrize("engine", ["vllm", "vllm-0.10", "sglang"])
@pytest.mark.parametrize("gpu", ["h100-sxm", "a100-sxm-80gb", "b200-sxm", "rtx-4090"])
def test_best_k_never_rises_with_the_batch_for_dense_models(gpu, engine, rate):
    best = best_ks(gpu, engine, 200, rate)
    assert best == sorted(best, reverse=True)


@missed("8k tokens: the best K rises by one, launches cost less beside longer KV reads")
@pytest.mark.parametrize(("gpu", "engine", "rate"), [("h100-sxm", "vllm-0.10", 0.8), ("h100-sxm", "vllm", 0.5)])
def test_best_k_never_rises_at_longer_context(gpu, engine, rate):
    """The same regularity where reading KV already makes speculation pay more at larger batches."""
    best = best_ks(gpu, engine, 8000, rate)
    assert best == sorted(best, reverse=True)


#: DFlash (arXiv 2602.06036, table 5), Llama-3.1-8B on B200 with SGLang, 60-token EAGLE-3 trees on GSM8K.
WIDE = {1: 1.9, 4: 1.6, 8: 1.3, 16: 0.9, 32: 0.6}
#: r there is 2.4, 2.8, 3.5, 5.1, 7.6.
WIDE_TOKENS = 2.4 * 1.9


def wide_r(batch: int) -> float:
    """60 drafts verified, 7 passes of the drafter (a chain's: branches of the tree add a little)."""
    setup = arm("b200-sxm", "llama-3.1-8b", "sglang")
    return step_s(setup, batch, 300, 60, passes=7) / plain_s(setup, batch, 300)


def test_wide_verification_collapses_at_large_batch():
    """Pays at 8 and no longer at 16 to 32; three times dearer, relative to plain, at 32 than at 1."""
    found = {batch: wide_r(batch) for batch in WIDE}
    shown("60-token tree: r at 1 4 8 16 32", ("ours", list(found.values())), ("measured", [2.4, 2.8, 3.5, 5.1, 7.6]))
    speedups = [WIDE_TOKENS / r for r in found.values()]
    shown("60-token tree: speed-up", ("ours", speedups), ("measured", list(WIDE.values())))
    assert all(later < earlier for earlier, later in pairwise(speedups))
    assert found[32] > 3 * found[1]
    assert speedups[2] > 1 > speedups[4]
    crossing = crossings(list(WIDE), np.log(speedups).tolist())[0].value
    print(f"stops paying at {crossing:.1f}, measured 14")
    assert 14 / 1.5 <= crossing <= 14 * 1.5


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(1, marks=missed("15 % too cheap")),
        4,
        pytest.param(8, marks=missed("11 % too dear")),
        pytest.param(16, marks=missed("19 % too dear")),
        pytest.param(32, marks=missed("24 % too dear")),
    ],
)
def test_r_of_wide_verification(batch):
    """Speed-ups are rounded to 0.1."""
    found, rounding = wide_r(batch), 0.05 / WIDE[batch]
    assert found == pytest.approx(WIDE_TOKENS / WIDE[batch], rel=rounding + 0.03)


@pytest.mark.parametrize(("model", "tp"), [("llama-3.1-8b", 1), ("llama-3.1-70b", 4), ("qwen3-30b-a3b", 2)])
@pytest.mark.parametrize("gpu", ["h100-sxm", "b200-sxm", "l40s", "a100-sxm-80gb"])
def test_useless_drafts_lose_at_every_batch_and_more_past_the_ridge(gpu, model, tp):
    """One token a step: r is the whole cost, above 1 always; dense models: past the ridge it rises with the batch."""
    for engine in ("vllm", "none"):
        setup = arm(gpu, model, engine, tp=tp)
        for k in (1, 3, 7):
            costs = [ratio(setup, batch, 300, k) for batch in POINTS]
            assert min(costs) > 1.0
            if setup.deployment.target.experts:
                continue
            bound = [setup.cost.target.price(verify_pass(batch, 300, k)).memory_bound for batch in POINTS]
            past = [cost for cost, memory in zip(costs, bound, strict=True) if not memory]
            assert len(past) > 2
            assert all(later > earlier for earlier, later in pairwise(past))
