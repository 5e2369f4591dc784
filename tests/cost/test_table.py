"""`table`: measured step times read, interpolated, left for the fallback; and results that say so."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost.base import OP_GROUPS, ForwardPass
from sim.cost.constant import Constant
from sim.cost.interpolate import Place, StepGrid
from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Roofline
from sim.cost.step_times import StepTime, read_step_times
from sim.cost.table import Table
from sim.errors import ScenarioError
from sim.experiment.run import run
from sim.metrics.usage import extrapolated_shares
from sim.models.catalogue import find_model
from sim.models.draft_heads import eagle_head
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping

HEADER = "num_seqs,new_tokens_per_seq,context_tokens,time_us"
BATCHES, NEW, CONTEXTS = (1, 4, 16, 64), (1, 4), (100, 400, 1600)
MACHINE = 1.25  # the measured server takes this much longer than the roofline says


def written(folder: Path, rows: list[tuple[object, ...]], header: str = HEADER) -> Path:
    path = folder / "steps.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture(scope="module")
def eagle(deploy):
    return deploy("llama-3.1-8b", "h100-sxm", drafter=eagle_head(find_model("llama-3.1-8b", Path()), "eagle3"))


@pytest.fixture(scope="module")
def model(deploy, tmp_path_factory):
    """A table of a machine that is MACHINE times slower than the roofline with its host, launches of prompts apart."""
    base = Roofline().bind_kernels(deploy("llama-3.1-8b", "h100-sxm"))
    rows = [
        (b, n, c, 1e6 * MACHINE * (base.target.price(verify_pass(b, c, n - 1)).seconds + base.host.seconds(b)))
        for b, n, c in itertools.product(BATCHES, NEW, CONTEXTS)
    ]
    path = written(tmp_path_factory.mktemp("table"), rows)
    bound = Table(path=str(path)).bind(deploy("llama-3.1-8b", "h100-sxm"))
    return bound, base, {(b, n, c): us * 1e-6 for b, n, c, us in rows}


def test_measured_points_are_kept(model):
    bound, _, measured = model
    for (b, n, c), seconds in measured.items():
        price = bound.target.price(verify_pass(b, c, n - 1))
        assert price.seconds == pytest.approx(seconds, rel=1e-12)
        assert not price.extrapolated
    assert bound.host.seconds(64) == 0.0  # a measured whole step contains it
    assert (bound.profile, bound.relative_error) == ("table+h100-sxm/bf16", 0.05)


def test_halfway_on_logarithmic_scales_is_the_geometric_mean(model):
    bound, _, measured = model
    price = bound.target.price

    def mean(*points: tuple[int, int, int]) -> float:
        return math.exp(float(np.mean([math.log(measured[point]) for point in points])))

    assert price(plain_pass(8, 400)).seconds == pytest.approx(mean((4, 1, 400), (16, 1, 400)), rel=1e-12)
    assert price(verify_pass(16, 400, 1)).seconds == pytest.approx(mean((16, 1, 400), (16, 4, 400)), rel=1e-12)
    middle = math.expm1((math.log1p(100) + math.log1p(400)) / 2)
    between = price(plain_pass(4, round(middle))).seconds
    assert between == pytest.approx(mean((4, 1, 100), (4, 1, 400)), rel=1e-3)


@given(st.integers(1, 64), st.integers(100, 1599), st.integers(0, 2))
def test_monotone_and_between_the_measured_where_they_rise(model, batch, context, k):
    price, measured = model[0].target.price, model[2]
    here = price(verify_pass(batch, context, k))
    assert not here.extrapolated
    assert min(measured.values()) * (1 - 1e-12) <= here.seconds <= max(measured.values()) * (1 + 1e-12)
    assert here.seconds <= price(verify_pass(batch, context + 1, k)).seconds * (1 + 1e-12)
    assert here.seconds <= price(verify_pass(batch, context, k + 1)).seconds * (1 + 1e-12)
    if batch < 64:
        assert here.seconds <= price(verify_pass(batch + 1, context, k)).seconds * (1 + 1e-12)


@given(st.integers(1, 300), st.integers(1, 20_000), st.integers(0, 8), st.integers(1, 4000))
def test_parts_sum_up_and_history_does_not_matter(model, batch, context, k, chunk):
    bound, base, _ = model
    for forward in (verify_pass(batch, context, k), join_passes(plain_pass(batch, context), prefill_pass(chunk))):
        price = bound.target.price(forward)
        assert price.seconds == pytest.approx(sum(getattr(price, group) for group in OP_GROUPS), rel=1e-12)
        assert price == bound.target.price(forward)
        assert price.memory_bound == base.target.price(forward).memory_bound


@pytest.mark.parametrize(
    "forward",
    [
        plain_pass(65, 400), plain_pass(1, 99), plain_pass(1, 1601), verify_pass(4, 400, 4), verify_pass(512, 9000, 7),
        prefill_pass(2048), prefill_pass(3), join_passes(plain_pass(8, 400), prefill_pass(500)),
    ],
)  # fmt: skip
def test_outside_is_the_fallback_at_the_scale_of_the_nearest_and_says_so(model, forward):
    """The machine is a constant factor off, so its table leads to that factor everywhere."""
    bound, base, _ = model
    price = bound.target.price(forward)
    expected = MACHINE * (base.target.price(forward).seconds + base.host.seconds(forward.num_seqs))
    assert price.seconds == pytest.approx(expected, rel=1e-5)
    assert price.extrapolated


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (plain_pass(64, 400), plain_pass(65, 400)),
        (plain_pass(4, 1600), plain_pass(4, 1601)),
        (verify_pass(4, 100, 3), verify_pass(4, 99, 3)),
    ],
)
def test_no_jump_at_the_edge(model, inside, outside):
    price = model[0].target.price
    assert (price(inside).extrapolated, price(outside).extrapolated) == (False, True)
    assert price(outside).seconds == pytest.approx(price(inside).seconds, rel=0.01)


def test_requests_without_drafts_beside_verified_ones_are_a_step_of_their_mean(model):
    ragged = join_passes(plain_pass(8, 400), verify_pass(8, 400, 3))
    price = model[0].target.price(ragged)
    assert not price.extrapolated
    assert model[2][16, 1, 400] < price.seconds < model[2][16, 4, 400]


def test_a_ragged_grid_knows_its_own_hull():
    """Long contexts were measured at small batches only."""
    points = [(1, 100), (64, 100), (1, 1000), (8, 1000)]
    grid = StepGrid(StepTime(b, 1, c, 1e-3 * b**0.5 * c**0.25, i) for i, (b, c) in enumerate(points))
    assert [grid.over_context(Place(b, 1)).covers(math.log1p(1000)) for b in (1, 4, 8, 9, 64)] == [1, 1, 1, 0, 0]
    assert grid.over_context(Place(65, 1)) is None
    assert grid.nearest(Place(500, 1)) == (64, 1)
    assert math.exp(grid.over_context(Place(4, 1)).at(math.log1p(100))) == pytest.approx(1e-3 * 2 * 100**0.25)


@pytest.mark.parametrize(
    ("gpu", "factor", "least", "worst", "mean"),
    [
        ("h100-sxm", 2, -0.003, 0.04, 0.014), ("h100-sxm", 4, -0.003, 0.15, 0.06),
        ("b200-sxm", 2, -0.003, 0.04, 0.014), ("b200-sxm", 4, -0.003, 0.15, 0.06),
        ("rtx-4090", 2, -0.22, 0.10, 0.015), ("rtx-4090", 4, -0.22, 0.25, 0.07),
    ],
)  # fmt: skip
def test_error_between_points(deploy, gpu, factor, least, worst, mean):
    """Of interpolating a known function: the figures that the documentation quotes."""
    bound = Roofline().bind(deploy("llama-3.1-8b", gpu))

    def seconds(b: int, n: int, c: int) -> float:
        return bound.target.price(verify_pass(b, c, n - 1)).seconds + bound.host.seconds(b)

    def doublings(first: int, last: int) -> list[int]:
        return [first * factor**i for i in range(20) if first * factor**i <= last]

    points = itertools.product(doublings(1, 256), (1, 4), doublings(64, 16_384))
    grid = StepGrid(StepTime(b, n, c, seconds(b, n, c), 0) for b, n, c in points)
    errors = [
        math.exp(grid.over_context(Place(b, n)).at(math.log1p(c))) / seconds(b, n, c) - 1
        for b, n, c in itertools.product(range(1, 257, 15), (1, 4), range(64, 16_384, 600))
    ]
    print(f"{gpu} x{factor}: {min(errors):.3f} {max(errors):.3f} {sum(map(abs, errors)) / len(errors):.4f}")
    assert min(errors) > least
    assert max(errors) < worst
    assert sum(map(abs, errors)) / len(errors) < mean


def test_repeats_count_as_their_median():
    grid = StepGrid(StepTime(1, 1, 10, seconds, 2) for seconds in (5e-3, 4e-3, 90e-3))
    assert math.exp(grid.over_context(Place(1, 1)).ys[0]) == pytest.approx(5e-3)


def test_draft_rows_price_the_drafter_launch_included(eagle, tmp_path):
    rows = [(b, 1, c, us, kind) for kind, us in (("target", 8000), ("draft", 700)) for b in (1, 64) for c in (10, 4000)]
    path = written(tmp_path, rows, HEADER + ",kind")
    bound = Table(path=str(path)).bind(eagle)
    assert bound.draft_launch_s == 0.0
    drafted = plain_pass(8, 500)._replace(num_draft_tokens=0)
    assert bound.draft.price(drafted).seconds == pytest.approx(700e-6)
    first = verify_pass(8, 500, 3)._replace(num_draft_tokens=0, num_logit_rows=8)
    base = Roofline().bind(eagle)
    price = bound.draft.price(first)
    assert price.extrapolated
    nearest = base.draft_pass_seconds(plain_pass(32, 125))  # 32 new tokens over 4000 cached ones: as many as there
    assert price.seconds == pytest.approx(base.draft_pass_seconds(first) * 700e-6 / nearest, rel=0.02)


def test_without_draft_rows_the_fallback_prices_the_drafter_and_the_error_is_its(eagle, deploy, tmp_path):
    path = str(written(tmp_path, [(1, 1, 10, 8000), (64, 4, 10, 9000)]))
    bound, base = Table(path=path).bind(eagle), Roofline().bind(eagle)
    assert bound.draft.price(plain_pass(4, 100)) == base.draft.price(plain_pass(4, 100))
    assert (bound.draft_launch_s, bound.relative_error) == (base.draft_launch_s, base.relative_error)
    alone = Table(path=path).bind(deploy("llama-3.1-8b", "h100-sxm"))
    assert alone.draft is alone.target
    assert alone.relative_error == 0.05


def test_a_table_of_plain_decoding_alone_has_the_error_of_its_fallback(deploy, tmp_path):
    path = str(written(tmp_path, [(1, 1, 10, 8000), (64, 1, 10, 9000)]))
    assert Table(path=path).bind(deploy("llama-3.1-8b", "h100-sxm")).relative_error == 0.08


def test_another_fallback_and_another_unit(deploy, tmp_path):
    path = written(tmp_path, [(4, 1, 100, 20)], HEADER.replace("time_us", "time_ms"))
    table = Table(path=str(path), fallback=Constant(target_ms=10.0))
    price = table.bind(deploy("llama-3.1-8b", "h100-sxm")).target.price
    assert [price(plain_pass(b, 100)).seconds for b in (1, 4, 9)] == pytest.approx([20e-3] * 3)
    free = Table(path=str(path), fallback=Constant(target_ms=0.0)).bind(deploy("llama-3.1-8b", "h100-sxm")).target
    assert [free.price(plain_pass(b, 100)).seconds for b in (1, 4)] == pytest.approx([0.0, 20e-3])


def test_nothing_costs_nothing(model):
    assert model[0].target.price(ForwardPass(0, 0, 0, 0, (0, 0, 0, 0), (0, 0, 0, 0))).seconds == 0.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (HEADER, "no measured step"),
        ("num_seqs,context_tokens,time_us\n1,1,9000", "missing new_tokens_per_seq"),
        (HEADER + ",gpu\n1,1,1,9000,h100", "unknown 'gpu'"),
        (HEADER.replace(",time_us", "") + "\n1,1,1", "exactly one of time_us, time_ms, time_s"),
        (HEADER + ",time_ms\n1,1,1,9000,9", "exactly one of time_us, time_ms, time_s"),
        (HEADER + "\n1,1,1,9000\n1,1,1", ":3: expected 4 fields, found 3"),
        (HEADER + "\n1,1,1,9000\n0,1,1,9000", ":3: num_seqs: expected a whole number from 1 to 65,536, found '0'"),
        (HEADER + "\n1,1.5,1,9000", ":2: new_tokens_per_seq: expected a whole number from 1 to 65, found '1.5'"),
        (HEADER + "\n1,2048,0,9000", ":2: new_tokens_per_seq"),
        (HEADER + "\n1,1,-1,9000", ":2: context_tokens"),
        (HEADER + "\n1,1,1,nan", ":2: time_us: expected a finite time, found 'nan'"),
        (HEADER + "\n1,1,1,fast", ":2: time_us: expected a finite time, found 'fast'"),
        (HEADER + "\n1,1,1,-3", ":2: time_us: expected 10 us to 100 s for a step, found -3; is the unit right?"),
        (HEADER + "\n1,1,1,7.3", ":2: time_us: expected 10 us to 100 s for a step, found 7.3; is the unit right?"),
        (HEADER + ",kind\n1,1,1,9000,prefill", ":2: kind: expected target or draft, found 'prefill'"),
        (HEADER + ",kind\n1,1,1,900,draft", "no row of kind target"),
        (HEADER.replace(",", ";") + "\n1;1;1;9000", "missing num_seqs"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, text, said):
    path = tmp_path / "steps.csv"
    path.write_text(text)
    with pytest.raises(ScenarioError) as refused:
        read_step_times(path)
    assert said in str(refused.value)


def test_every_fault_is_reported_at_once(tmp_path):
    path = written(tmp_path, [(1, 1, 1, "x"), (1, 1, 1, 9000), (0, 99, 1, 9000)])
    with pytest.raises(ScenarioError) as refused:
        read_step_times(path)
    assert [problem.key for problem in refused.value.problems] == ["time_us", "num_seqs", "new_tokens_per_seq"]


def test_times_of_another_unit_are_seen_by_comparison(deploy, tmp_path):
    path = written(tmp_path, [(1, 1, 100, 9000), (2, 1, 100, 9_000_000)])  # nanoseconds in the second
    with pytest.raises(ScenarioError, match=r"steps\.csv:3: 9000 ms, where the fallback says 6\.\d+ ms; is the unit"):
        Table(path=str(path)).bind(deploy("llama-3.1-8b", "h100-sxm"))


SCENARIO = {
    "name": "measured", "hardware": "h100-sxm", "model": "llama-3.1-8b",
    "cost_model": {"kind": "table", "path": "data/steps.csv"},
    "arms": {
        "plain": {},
        "ngram": {
            "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
            "acceptance": {"kind": "iid", "rate": 0.5},
        },
    },
    "baseline": "plain",
    "workload": {
        "arrivals": {"kind": "closed", "max_concurrency": 4},
        "prompt_tokens": {"kind": "fixed", "value": 200}, "output_tokens": {"kind": "fixed", "value": 50},
        "num_requests": 12,
    },
    "sweep": {"replicates": 1},
}  # fmt: skip


@pytest.fixture
def measured_folder(tmp_path):
    (tmp_path / "data").mkdir()
    rows = [(b, n, c, 7000 + 20 * b * n + b * c // 100) for b in (1, 4) for n in (1, 4) for c in (64, 1024)]
    written(tmp_path / "data", rows)
    return tmp_path


def test_a_run_knows_which_steps_were_not_measured(measured_folder):
    """Exactly the steps with prefill: everything else lies in the table."""
    record = simulate(load_mapping(SCENARIO).scenario, "plain", 0, measured_folder)
    steps = record.steps
    assert steps.extrapolated.tolist() == (steps.prefill_tokens > 0).tolist()
    count, of_time = extrapolated_shares(steps, np.ones(len(steps.start_ns), bool))
    assert 0 < count < of_time < 1  # prefill takes longer than decoding


def test_results_and_manifest_say_so(measured_folder):
    loaded = load_mapping(SCENARIO, base_dir=measured_folder)
    folder = run(loaded, measured_folder / "out", jobs=1)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert len(manifest["warnings"]) == 2
    assert "of the steps of a run lay outside of the measured step times" in manifest["warnings"][0]
    details = [json.loads(path.read_text()) for path in folder.rglob("result.json")]
    assert len(details) == 2
    for detail in details:
        assert 0 < detail["extrapolated"]["steps"] < detail["extrapolated"]["target_time"] < 1
        assert any("of the steps" in note for note in detail["notes"])


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_time_scale_carries_over(seed):
    """Measured times twice as long give prices twice as long everywhere in the grid."""
    rng = np.random.default_rng(seed)
    steps = [StepTime(b, n, c, float(rng.uniform(5e-3, 9e-3)), 0) for b in (1, 8) for n in (1, 4) for c in (10, 99)]
    once, twice = StepGrid(steps), StepGrid(step._replace(seconds=2 * step.seconds) for step in steps)
    for place in (Place(1, 1), Place(3, 2.5), Place(8, 4)):
        low, high = (grid.over_context(place).at(math.log1p(50)) for grid in (once, twice))
        assert high - low == pytest.approx(math.log(2.0))
