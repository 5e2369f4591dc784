import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sim.report.figures import acceptance, latency_cdf, loads, memory, pareto, speedup, step_time, timeline
from sim.report.figures.latency_cdf import log_ticks
from sim.report.figures.timeline import thin
from sim.report.panel import figures_of
from sim.report.reader import load_results
from sim.report.style import MEMORY, PARTS, arm_styles, dark_colors, load_axis

Make = Callable[..., Path]


def _named(figure: object, part: str) -> list:  # type: ignore[type-arg]
    return [trace for trace in figure.data if part in (trace.name or "")]  # type: ignore[attr-defined]


def test_speed_up_shows_the_compared_ratios(sweep_dir: Path) -> None:
    results = load_results(sweep_dir)
    panel = speedup.panel(results)
    assert panel is not None
    curve = next(t for t in panel.views[0].charts[0].figure.data if t.name == "eagle3-k7" and t.mode == "lines+markers")
    expected = [results.ratio(cell, "eagle3-k7", "output_throughput") for cell in results.cells]
    assert list(curve.y) == [ratio.speedup for ratio in expected if ratio]
    assert list(curve.x) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert "n = 5 replicates" in curve.customdata[0]
    assert "CI" in curve.customdata[0]


def test_break_even_marker_and_title_agree_with_the_file(sweep_dir: Path) -> None:
    results = load_results(sweep_dir)
    panel = speedup.panel(results)
    assert panel is not None
    crossing = results.break_even["arms"]["eagle3-k7"]["output_throughput"]["crossings"][0]
    (marker,) = _named(panel.views[0].charts[0].figure, "break-even of eagle3-k7")
    assert (marker.x[0], marker.y[0]) == (crossing["value"], 1)
    assert marker.x[0] + marker.error_x.array[0] == pytest.approx(crossing["ci_high"])
    assert marker.x[0] - marker.error_x.arrayminus[0] == pytest.approx(crossing["ci_low"])
    low, high = crossing["bracket"]
    assert f"eagle3-k7 stops paying between {low} and {high} concurrent requests" in panel.views[0].finding


def test_closed_form_only_on_the_throughput_view_of_a_concurrency_sweep(make: Make, sweep_dir: Path) -> None:
    closed = speedup.panel(load_results(sweep_dir))
    rate = speedup.panel(load_results(make(key="workload.arrivals.request_rate")))
    assert closed is not None
    assert rate is not None
    assert [bool(_named(view.charts[0].figure, "closed form")) for view in closed.views] == [True, False, False, False]
    assert not _named(rate.views[0].charts[0].figure, "closed form")
    (curve, _) = _named(closed.views[0].charts[0].figure, "closed form")
    assert (curve.x[0], curve.x[-1]) == pytest.approx((1, 256))


def test_failed_load_is_a_gap_and_saturated_load_is_hollow(make: Make) -> None:
    results = load_results(make(loads=(1, 2, 4, 8), failed={2: "no room"}, saturated=(8,), key="workload.request_rate"))
    panel = speedup.panel(results)
    assert panel is not None
    view = panel.views[0]
    curve = next(t for t in view.charts[0].figure.data if t.name == "eagle3-k3" and t.mode == "lines+markers")
    assert [math.isnan(y) for y in curve.y] == [False, True, False, False]
    assert curve.connectgaps is False
    assert [symbol.endswith("-open") for symbol in curve.marker.symbol] == [False, False, False, True]
    assert any("no room" in note for note in view.warnings)
    assert any("no room" in str(row[-1]) for row in view.table.rows)
    assert any("Saturated at 8" in note for note in loads.panel(results).views[0].warnings)


def test_single_point_falls_back_to_bars_and_dots(make: Make) -> None:
    results = load_results(make(loads=(64,), key=None))
    absolute, relative = loads.panel(results), speedup.panel(results)
    assert relative is not None
    assert {trace.type for trace in absolute.views[0].charts[0].figure.data} == {"bar"}
    assert absolute.views[0].charts[0].figure.data[0].error_y.array[0] > 0
    dots = relative.views[0].charts[0].figure.data
    assert all(trace.mode == "markers+text" for trace in dots)
    assert len(dots[0].x) == 4


def test_one_arm_alone_has_no_speed_up_panel(make: Make) -> None:
    results = load_results(make(loads=(1, 8), arms=("plain",)))
    assert speedup.panel(results) is None
    assert acceptance.panel(results) is None
    assert "linear layers" in step_time.panel(results).views[0].finding.lower()  # type: ignore[union-attr]


def test_cdfs_are_monotone_and_bounded_in_size(sweep_dir: Path) -> None:
    panel = latency_cdf.panel(load_results(sweep_dir))
    assert panel is not None
    assert len(panel.views) == 9
    for figure in figures_of(panel).values():
        for trace in figure.data:
            assert 50 <= len(trace.x) <= 500
            assert (np.diff(trace.x) >= 0).all()
            assert (np.diff(trace.y) > 0).all()


def test_itl_histograms_with_different_ranges_are_pooled() -> None:
    edges, counts = latency_cdf._pool(
        [{"edges_ms": [1.0, 2.0, 4.0], "counts": [3, 1]}, {"edges_ms": [2.0, 4.0, 8.0], "counts": [5, 7]}]
    )
    assert edges.tolist() == [1, 2, 4, 8]
    assert counts.tolist() == [3, 6, 7]


def test_acceptance_rates_come_back_from_the_histogram(sweep_dir: Path, synthetic) -> None:  # type: ignore[no-untyped-def]
    panel = acceptance.panel(load_results(sweep_dir))
    assert panel is not None
    rates = panel.views[0].charts[0].figure.data
    unconditional = next(t for t in rates if t.name == "eagle3-k7" and t.line.dash == "solid")
    conditional = next(t for t in rates if t.name == "eagle3-k7" and t.line.dash == "dot")
    assert list(unconditional.y) == pytest.approx(synthetic.RATES["eagle3-k7"], abs=2e-4)
    assert conditional.y[1] == pytest.approx(0.52 / 0.74, abs=2e-4)
    bars = panel.views[0].charts[1].figure.data
    assert [sum(bar.y) for bar in bars] == pytest.approx([1, 1])


def test_step_time_shares_add_up_to_one(sweep_dir: Path) -> None:
    panel = step_time.panel(load_results(sweep_dir))
    assert panel is not None
    for figure in figures_of(panel).values():
        assert np.sum([trace.y for trace in figure.data], axis=0) == pytest.approx(np.ones(9))


def test_memory_parts_fill_the_gpu(sweep_dir: Path) -> None:
    panel = memory.panel(load_results(sweep_dir))
    assert panel is not None
    assert sum(trace.x[0] for trace in panel.views[0].charts[0].figure.data) == pytest.approx(80)
    assert "410\u202f128 with eagle3-k3 and eagle3-k7" in panel.views[0].finding


def test_pareto_has_a_line_per_arm_ordered_by_load(sweep_dir: Path) -> None:
    panel = pareto.panel(load_results(sweep_dir))
    assert panel is not None
    for trace in panel.views[0].charts[0].figure.data:
        assert len(trace.x) == 9
        assert trace.y[0] < trace.y[-1]
        assert trace.text[0].strip() == "1"


def test_thinning_keeps_extremes_order_and_limit() -> None:
    time = np.arange(10_000.0)
    values = np.sin(time / 50)
    values[4321] = 99.0
    x, y = thin(time, values, 500)
    assert len(x) <= 500
    assert (np.diff(x) > 0).all()
    assert y.max() == 99.0
    assert y.min() == values.min()
    assert thin(time[:10], values[:10], 500)[0].size == 10


def test_timeline_stays_within_its_budget(sweep_dir: Path) -> None:
    panel = timeline.panel(load_results(sweep_dir))
    assert panel is not None
    assert max(len(trace.x) for figure in figures_of(panel).values() for trace in figure.data) <= 2000


def test_log_ticks() -> None:
    assert log_ticks(8, 130) == [10, 20, 50, 100]
    assert log_ticks(1, 1e5) == [1, 10, 100, 1000, 10_000, 100_000]


def test_load_axis_is_logarithmic_only_over_a_wide_positive_range(sweep_dir: Path) -> None:
    axis = load_results(sweep_dir).axis
    assert axis is not None
    wide = load_axis(axis, [1, 2, 4, 256])
    assert (wide["type"], wide["tickvals"]) == ("log", [1, 2, 4, 256])
    assert "type" not in load_axis(axis, [4, 6, 8])
    assert "type" not in load_axis(axis, [0, 6, 80])
    assert len(load_axis(axis, range(1, 257))["tickvals"]) <= 24


def test_every_colour_has_one_dark_partner(sweep_dir: Path) -> None:
    dark = dark_colors()
    for _, light, partner in (*PARTS.values(), *MEMORY.values()):
        assert dark[light] == partner
    for style in arm_styles(load_results(sweep_dir)).values():
        assert dark[style.color] == style.dark
        assert style.band in dark
