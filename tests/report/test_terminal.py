import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from sim.experiment.run import run
from sim.report.axis import Axis, order_cells
from sim.report.dashboard import page_html
from sim.report.reader import load_results
from sim.report.terminal import break_even_lines, closed_form_text, summary_text
from sim.scenario.load import load_scenario

Make = Callable[..., Path]


def test_sweep_has_a_row_per_load_and_the_break_even(sweep_dir: Path) -> None:
    text = summary_text(sweep_dir)
    rows = [line for line in text.splitlines() if re.match(r"^\d", line)]
    assert [row.split()[0] for row in rows] == ["1", "2", "4", "8", "16", "32", "64", "128", "256"]
    assert rows[0].count("+") == 2
    assert " -" in rows[-1]
    assert "eagle3-k7 pays up to about" in text
    assert "step times +-8 %" in text


def test_columns_are_aligned_and_narrow(sweep_dir: Path, make: Make) -> None:
    for text in (summary_text(sweep_dir), summary_text(make(loads=(64,), key=None))):
        assert max(map(len, text.splitlines())) <= 100
        assert text.isascii()
    rows = [line for line in summary_text(sweep_dir).splitlines() if re.match(r"^(concurrency|\d)", line)]
    assert len({len(row) for row in rows}) == 1


def test_single_point_shows_both_arms_with_intervals(make: Make) -> None:
    text = summary_text(make(loads=(64,), key=None))
    line = next(line for line in text.splitlines() if line.startswith("TPOT median"))
    assert re.search(r"\d+\.\d+ +\d\.\d+ +1\.\d\d \(1\.\d\d-1\.\d\d\) \+", line)
    assert "Break-even" not in text


def test_colour_changes_nothing_but_colour(sweep_dir: Path) -> None:
    coloured = summary_text(sweep_dir, colour=True)
    assert "\x1b[32m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == summary_text(sweep_dir, colour=False)
    assert "\x1b" not in summary_text(sweep_dir, colour=False)


def test_failed_and_saturated_loads_are_said(make: Make) -> None:
    folder = make(loads=(1, 8, 64), failed={8: "no room"}, saturated=(64,), key="workload.arrivals.request_rate")
    text = summary_text(folder)
    assert "failed: no room" in text
    assert re.search(r"^64 .* saturated$", text, re.MULTILINE)
    assert "note: Saturated at 64 requests/s: plain, eagle3-k3 and eagle3-k7" in text


def test_names_cannot_steer_the_terminal(make: Make) -> None:
    folder = make(loads=(1, 8), name="\x1b]0;owned\x07", rename={"eagle3-k3": "k3\x1b[31m"}, failed={8: "\x1b[2J"})
    assert "\x1b" not in summary_text(folder)
    assert "\x07" not in summary_text(folder)


def test_many_arms_stay_within_the_screen(make: Make) -> None:
    folder = make(loads=(1, 8), rename={"eagle3-k3": "a-very-long-arm-name-that-goes-on-and-on", "plain": "p" * 50})
    assert max(map(len, summary_text(folder).splitlines())) <= 100


def test_rules_that_change_the_output_are_named(make: Make) -> None:
    assert "Verified by greedy_draft (lossless): eagle3-k3, eagle3-k7" in summary_text(make())
    text = " ".join(summary_text(make(lossy="eagle3-k7")).split())
    assert "typical (NOT lossless: the output is not the target's): eagle3-k7" in text
    assert "note: eagle3-k7: typical is not lossless" in text


def test_one_arm_alone_says_what_its_speed_up_is_of(make: Make) -> None:
    text = summary_text(make(loads=(1, 8), arms=("plain", "eagle3-k3")))
    assert "speed-up of throughput (95 % CI)" in text
    assert max(map(len, text.splitlines())) <= 100


def test_factors_and_runs_without_a_window_are_told(make: Make) -> None:
    folder = make(loads=(1, 8))
    resolved = folder / "scenario.resolved.yaml"
    resolved.write_text(resolved.read_text() + "what_if: {target_time: 1.0, verify_time: 1.5, acceptance: 0.8}\n")
    rows = pd.read_csv(folder / "summary.csv").assign(steady=lambda table: table["max_concurrency"] < 8)
    rows.to_csv(folder / "summary.csv", index=False)
    text = " ".join(summary_text(folder).split())
    assert "note: What if: verify_time x 1.50 and acceptance x 0.800; these are not the results" in text
    assert "note: Too few requests at 8 concurrent requests: the whole run is measured" in text


def test_fields_varied_in_step_are_one_curve(tmp_path: Path) -> None:
    source = tmp_path / "zip.yaml"
    source.write_text(
        "hardware: h100-sxm\nmodel: llama-3.1-8b\ncost_model: {kind: constant, target_ms: 10, draft_ms: 1}\n"
        "arms:\n  plain: {}\n  k3:\n    speculative_config: {method: eagle3, num_speculative_tokens: 3}\n"
        "    acceptance: {kind: iid, rate: 0.7}\n"
        "workload:\n  arrivals: {kind: closed, max_concurrency: 1}\n  prompt_tokens: {kind: fixed, value: 8}\n"
        "  output_tokens: {kind: fixed, value: 40}\n  num_requests: 24\n"
        "sweep:\n  combine: zip\n  replicates: 2\n"
        "  vary: {workload.arrivals.max_concurrency: [1, 2, 4], workload.num_requests: [8, 40, 160]}\n"
    )
    run_dir = run(load_scenario(str(source)), tmp_path / "out", jobs=1)
    text = summary_text(run_dir)
    page = page_html(load_results(run_dir))
    assert "Concurrency (requests in flight), num_requests in step" in page
    assert "concurrency 2<br>num_requests = 40" in page.replace("\\u003c", "<").replace("\\u003e", ">")
    assert "in step with the loads below: num_requests = 8; num_requests = 40; num_requests = 160" in " ".join(
        text.split()
    )
    assert text.count("Break-even, output throughput") == 1
    assert re.findall(r"^([124]) +\d", text, re.MULTILINE) == ["1", "2", "4"]  # as "160" < "40" would not have it


def test_indented_answers_stay_within_the_screen(sweep_dir: Path) -> None:
    results = load_results(sweep_dir)
    assert results.axis
    for margin in ("", "  ", " " * 12):
        lines = list(break_even_lines(results, results.axis, results.slices[0], margin))
        assert max(map(len, lines)) <= 100
        assert all(line.startswith(margin) for line in lines)


def test_curves_of_a_grid_stand_in_the_order_of_the_sweep() -> None:
    points = [{"cell_id": f"{x}-{k}", "vary.n": x, "vary.k": k} for x in (1, 2) for k in (2, 10)]
    cells = order_cells(pd.DataFrame(points), [], Axis("n", True))
    assert [cell.cell_id for cell in cells] == ["1-2", "2-2", "1-10", "2-10"]


def test_the_closed_form_says_whether_memory_ends_it() -> None:
    curve = {"batch": [1, 2, 3], "speedup": [1.5, 1.4, 1.3], "crossings": [], "status": "always"}
    full, free = (closed_form_text({"k3": curve | {"capacity_reached_first": known}}) for known in (True, False))
    assert full == "k3 1.50x at batch 1, pays at every batch up to 3, where the KV pool is full"
    assert free == "k3 1.50x at batch 1, pays at every batch up to 3"
