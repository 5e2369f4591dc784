"""Operators: whole tables are priced by the code that prices a step, and fits find what made a table."""

import numpy as np
import pytest

from sim.calibration.attention import DECODE, MIXED, MLA, PREFILL
from sim.calibration.collectives import ALL_REDUCE, EXCHANGE_OPERATORS
from sim.calibration.layers import ELEMENTWISE, with_elementwise_sums
from sim.calibration.linear import GEMM, MOE, SPREAD_EXPERTS
from sim.calibration.operators import Rows, left_out_us
from sim.calibration.tables import Table, read_table
from sim.cost.attention import AttentionShape, bind_gqa
from sim.cost.base import NO_ATTENTION, AttentionLoad
from sim.cost.moe import Routing
from sim.errors import CalibrationError, ScenarioError
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import choose_profile
from sim.theory.tokens import distinct_experts


def table(**columns) -> Table:
    length = max(len(np.atleast_1d(values)) for values in columns.values())
    return Table("table", {name: np.broadcast_to(np.atleast_1d(v), length).astype(str) for name, v in columns.items()})


def grid(**axes) -> dict[str, np.ndarray]:
    return {name: mesh.ravel() for name, mesh in zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True)}


def heads(**axes) -> dict[str, np.ndarray]:
    cells = grid(layout=range(4), **axes)
    layouts = np.array([(8, 1), (32, 8), (64, 4), (40, 8)])[cells.pop("layout")]
    return cells | {"q_heads": layouts[:, 0], "kv_heads": layouts[:, 1], "head_dim": np.full(len(layouts), 128)}


GEMM_CELLS = grid(m=[1, 8, 64, 256, 1024, 4096], n=[2048, 8192, 28672], k=[2048, 4096, 16384])
TABLES = {
    "gemm": (GEMM, dict(dtype="fp8", **GEMM_CELLS)),
    "decode": (DECODE, dict(kv_dtype="bfloat16", kernel="x", **heads(batch=[1, 16, 256], context=[128, 2048, 32768]))),
    "prefill": (PREFILL, dict(kernel="flash_attn_fa3", **heads(batch=[1, 16, 128], q_len=[16, 128, 1000, 8192]))),
    "fa2": (PREFILL, dict(kernel="flash_attn_fa2", **heads(batch=[1, 16, 128], q_len=[16, 128, 1000, 8192]))),
    "moe": (MOE, dict(dtype="bfloat16", kernel="x", routing="balanced", experts=128, topk=8, hidden=4096, tp=1, ep=1,
                      **grid(tokens=[1, 4, 16, 64, 512, 4096], inter=[768, 1536, 3072]))),
    "spread experts": (SPREAD_EXPERTS, dict(
        dtype="bfloat16", kernel="x", routing="power_law_1.2", experts=128, topk=8, hidden=4096, tp=1, ep=8,
        **grid(tokens=[1, 4, 16, 64, 512, 4096], inter=[768, 1536, 3072]))),
    "all-to-all": (EXCHANGE_OPERATORS[1], dict(op="alltoall", stack="nccl", n_gpus=8, bytes=2 ** np.arange(8, 30))),
    "all-reduce": (ALL_REDUCE, dict(op="all_reduce", stack="engine", n_gpus=8, bytes=2 ** np.arange(8, 27))),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_fit_reproduces_the_table_that_its_own_section_made(name):
    operator, columns = TABLES[name]
    gpu = find_gpu("h100-sxm")
    rows = Rows(gpu, table(gpu=gpu.name, time_us=1.0, **columns))
    truth = tuple(0.7 * p.start + 0.3 * (p.low + 0.25 * (p.high - p.low)) for p in operator.parameters(rows))
    times = operator.price_us(rows, operator.section(rows, truth))
    assert times.shape == (len(rows.table),)
    assert (times > 0).all()
    made = Rows(gpu, table(gpu=gpu.name, time_us=times, **columns))
    found = operator.fit(made)
    assert found.mape < 1.0
    held_out = left_out_us(operator, made, found)
    assert 100 * np.abs(held_out / times - 1).mean() < 2.0


@pytest.mark.parametrize("gpu_name", ["h100-sxm", "a100-sxm-80gb"])
def test_rows_of_a_table_cost_what_the_same_pass_costs_in_a_server(gpu_name):
    gpu = find_gpu(gpu_name)
    chosen = choose_profile(gpu)
    decode, extend = chosen.decode_attention("bf16"), chosen.sections().extend_attention
    rng = np.random.default_rng(3)
    seqs, new, cached, batch, context = (rng.integers(low, high, 50) for low, high in
                                         ((1, 64), (2, 300), (0, 9000), (0, 200), (1, 9000)))  # fmt: skip
    shape = AttentionShape(32, 32, 8, 128)
    bound = bind_gqa(shape, 2, gpu, decode, extend)
    extends = (seqs, seqs * new, seqs * (new + cached), seqs * (new * cached + new * (new + 1) // 2))
    decodes = (batch, batch, batch * context, batch * context)
    together = bound.extending(
        AttentionLoad(*(c.astype(float) for c in decodes)), AttentionLoad(*(c.astype(float) for c in extends))
    )
    for i in range(50):
        one = bound.terms(AttentionLoad(*(int(c[i]) for c in decodes)), AttentionLoad(*(int(c[i]) for c in extends)))
        assert one.seconds == pytest.approx(together.seconds[i], rel=1e-12)
        assert type(one.seconds) is float
    assert bound.terms(AttentionLoad(*(int(c[0]) for c in extends)), NO_ATTENTION).seconds > 0


def test_fa2_reads_the_kv_again_once_one_heads_share_leaves_the_cache():
    gpu = find_gpu("rtx-4090")
    chosen = choose_profile(gpu)
    bound = bind_gqa(
        AttentionShape(1, 32, 8, 128), 2, gpu, chosen.decode_attention("bf16"), chosen.sections().extend_attention
    )

    def reads(context: int) -> float:
        load = AttentionLoad(128, 512, 128 * context, 512 * context)
        return bound.extending(NO_ATTENTION, load).memory_s / (128 * context * bound.packed.kv_token_s)

    assert reads(512) == pytest.approx(1.0)
    assert reads(8192) == pytest.approx(4.0)


def test_elementwise_sums_count_both_norms():
    base = dict(gpu="RTX-4090", model="Llama-3.1-8B", tp=1, tokens=[8, 8, 8, 16], time_us=[1.0, 2.0, 4.0, 1.0])
    found = with_elementwise_sums(table(layer=["layernorm", "rotary_emb", "act_fn", "layernorm"], **base))
    own = found.where(found.text("layer") == "elementwise")
    assert own.numbers("time_us").tolist() == [8.0]
    assert len(ELEMENTWISE.parameters(Rows(find_gpu("rtx-4090"), own))) == 2


def test_skewed_and_correlated_routing_touch_fewer_experts():
    uniform, skewed, correlated = Routing(), Routing(popularity_skew=1.0), Routing(adjacent_correlation=0.5)
    for tokens in (2, 8, 64):
        assert uniform.distinct(128, 8, tokens) == pytest.approx(distinct_experts(tokens, 128, 8))
        assert skewed.distinct(128, 8, tokens) < uniform.distinct(128, 8, tokens)
        assert correlated.distinct(128, 8, tokens) < uniform.distinct(128, 8, tokens)
    for routing in (uniform, skewed, correlated):
        assert routing.distinct(128, 8, 1) == pytest.approx(8.0)
        assert routing.distinct(128, 8, 100_000) == pytest.approx(128.0)


def test_mla_prices_heads_and_formats_of_one_table_apart():
    columns = dict(kernel="x", heads=[16, 128, 128], weight_dtype="bfloat16", kv_dtype=["bfloat16", "bfloat16", "fp8"])
    rows = Rows(find_gpu("h100-sxm"), table(batch=64, context=8192, time_us=1.0, **columns))
    few, many, small_kv = MLA.price_us(rows, choose_profile(rows.gpu).sections().mla)
    assert few < many
    assert small_kv <= many


def test_unknown_formats_are_named():
    rows = Rows(find_gpu("h100-sxm"), table(dtype="fp6", m=[1], n=[2048], k=[2048], time_us=[5.0]))
    with pytest.raises(CalibrationError, match="unknown format 'fp6'"):
        GEMM.usable(rows)


@pytest.mark.parametrize(("text", "message"), [
    ("", "missing columns gpu"),
    ("gpu,m\n", "missing columns time_us; found gpu, m"),
    ("gpu,time_us\n", "no rows"),
    ("gpu,time_us\na,1\nb\n", "row 3 has 1 fields, the header 2"),
])  # fmt: skip
def test_malformed_tables_are_named(tmp_path, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=message):
        read_table(path, ("gpu", "time_us"))


def test_every_cell_that_is_no_number_is_named_with_line_and_column(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("gpu,m,note,time_us\na,0,,2\n\nb,x,,0\nc,nan,4,inf\nd,1.5,-1,1\n")
    with pytest.raises(ScenarioError) as error:
        read_table(path, ("gpu", "time_us"), ("time_us", "m", "absent"), optional=("note",))
    assert sorted(str(problem).removeprefix(str(path)) for problem in error.value.problems) == [
        ":2: m: expected a whole number of at least 1, found '0'",
        ":4: m: expected a whole number of at least 1, found 'x'",
        ":4: time_us: expected a finite number above 0, found '0'",
        ":5: m: expected a whole number of at least 1, found 'nan'",
        ":5: time_us: expected a finite number above 0, found 'inf'",
        ":6: m: expected a whole number of at least 1, found '1.5'",
        ":6: note: expected a finite number of at least 0, found '-1'",
    ]
    path.write_text("gpu,m,note,time_us\na,1.0,,2\nb,0,5,1\n")
    found = read_table(path, ("gpu",), ("time_us",), ("m",), ("note",)).optional_numbers("note")
    assert np.isnan(found[0])
    assert found[1] == 5


def test_a_word_among_numbers_is_named_with_its_row():
    with pytest.raises(CalibrationError, match=r"table: row 3: time_us is 'fast', not a number"):
        table(time_us=["1.0", "fast"]).numbers("time_us")


def test_mixed_rows_without_a_chunk_are_not_mixed():
    rows = Rows(find_gpu("rtx-4090"), table(prefill_q=[0, 16], n_decode=[1, 1]))
    assert MIXED.usable(rows).tolist() == [False, True]
