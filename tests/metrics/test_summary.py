"""Metrics against a slow, plain reading of the columns: lists, loops and the definitions of vLLM."""

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sim.metrics.details import acceptance_details, itl_histogram, mean_decode_context, step_time_s
from sim.metrics.record import RunRecord, Status
from sim.metrics.series import request_columns, timeline_columns
from sim.metrics.slo import Slo
from sim.metrics.summary import Measure, Measured, measure_run, null_reason, summary_row
from sim.metrics.window import Loop, measurement_window

ToyRun = Callable[..., RunRecord]
CASES = [
    pytest.param({"concurrency": 6, "num": 80}, 6, id="closed"),
    pytest.param({"concurrency": 12, "num": 80, "slots": 8}, 12, id="closed-with-queue"),
    pytest.param({"rate": 4.0, "num": 80}, None, id="open"),
    pytest.param({"concurrency": 1, "num": 9, "k": 0}, 1, id="plain"),
]


class SlowMetrics:
    """The same numbers, request by request and token by token."""

    def __init__(self, record: RunRecord, start: int, end: int, first: int, last: int, slo: Slo) -> None:
        self.chunks: list[list[tuple[int, int, int, int]]] = []  # per request: (end of step, tokens, drafted, accepted)
        requests, steps = record.requests, record.steps
        for row in range(len(requests.arrival_ns)):
            mine = []
            for position in range(int(requests.output_tokens[row])):
                at = int(requests.output_offset[row]) + position
                step = int(record.emission_step[at])
                if step >= 0:
                    left = int(requests.output_tokens[row]) - position
                    tokens = min(int(record.accepted[at]) + 1, left)
                    when = int(steps.start_ns[step]) + int(steps.duration_ns[step])
                    mine.append((when, tokens, int(record.drafted[at]), int(record.accepted[at])))
            self.chunks.append(mine)
        self.ttft, self.tpot, self.itl, self.e2el, self.good = [], [], [], [], 0
        for row in range(first, last):
            self._request(record, row, slo)
        inside = [c for mine in self.chunks for c in mine if start < c[0] <= end]
        self.seconds = (end - start) / 1e9
        self.tokens = sum(c[1] for c in inside)
        self.steps = len(inside)
        drafts = [c for c in inside if c[2] > 0]
        self.drafts, self.draft_tokens = len(drafts), sum(c[2] for c in drafts)
        self.accepted = sum(c[3] for c in drafts)
        self.per_pos = [sum(c[3] > i for c in drafts) for i in range(max((c[2] for c in drafts), default=0))]
        self.reached = [sum(c[2] > i and c[3] >= i for c in drafts) for i in range(len(self.per_pos))]
        done = [row for row in range(len(self.chunks)) if start < int(requests.finish_ns[row]) <= end]
        self.completed = len(done)
        self.inputs = sum(int(requests.prompt_tokens[row]) for row in done)
        overlap = [
            max(0, min(int(s + d), end) - max(int(s), start))
            for s, d in zip(steps.start_ns, steps.duration_ns, strict=True)
        ]
        self.running = sum(int(r) * o for r, o in zip(steps.running, overlap, strict=True)) / (end - start)

    def _request(self, record: RunRecord, row: int, slo: Slo) -> None:
        mine, arrival = self.chunks[row], int(record.requests.arrival_ns[row])
        ttft, e2el = (mine[0][0] - arrival) / 1e6, (mine[-1][0] - arrival) / 1e6
        out = sum(c[1] for c in mine)
        assert out == int(record.requests.output_tokens[row])
        tpot = 0.0
        if out > 1:
            tpot = (e2el - ttft) / (out - 1)
            self.tpot.append(tpot)
        self.ttft.append(ttft)
        self.e2el.append(e2el)
        self.itl += [(b[0] - a[0]) / 1e6 for a, b in itertools.pairwise(mine)]
        assert slo.ttft is not None
        assert slo.tpot is not None
        self.good += ttft <= slo.ttft and tpot <= slo.tpot


def quantile(values: list[float], q: float) -> float:
    ranked = sorted(values)
    rank = q * (len(ranked) - 1)
    low = math.floor(rank)
    return ranked[low] + (rank - low) * (ranked[min(low + 1, len(ranked) - 1)] - ranked[low])


SLO = Slo(ttft=60.0, tpot=9.0)


def measured(record: RunRecord, concurrency: int | None, **kwargs: object) -> Measured:
    return measure_run(record, Measure(Loop(concurrency), SLO, num_gpus=2, usd_per_gpu_hour=3.6, **kwargs))  # type: ignore[arg-type]


@pytest.mark.parametrize(("setup", "concurrency"), CASES)
def test_summary_equals_the_slow_reading(toy_run: ToyRun, setup: dict[str, int], concurrency: int | None) -> None:
    record = toy_run(**setup)
    run = measured(record, concurrency)
    window, row = run.window, summary_row(run)
    num = setup["num"]
    slow = SlowMetrics(record, window.start_ns, window.end_ns, window.num_warmup, num - window.num_cooldown, SLO)
    for name in ("ttft", "tpot", "itl", "e2el"):
        values = getattr(slow, name)
        assert row[f"mean_{name}_ms"] == pytest.approx(statistics.fmean(values), rel=1e-12)
        assert row[f"std_{name}_ms"] == pytest.approx(statistics.pstdev(values), rel=1e-9, abs=1e-9)
        for key, q in (("median", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
            assert row[f"{key}_{name}_ms"] == pytest.approx(quantile(values, q), rel=1e-12)
    assert row["duration"] == slow.seconds
    assert row["completed"] == slow.completed
    assert row["output_throughput"] == pytest.approx(slow.tokens / slow.seconds, rel=1e-12)
    assert row["total_token_throughput"] == pytest.approx((slow.inputs + slow.tokens) / slow.seconds, rel=1e-12)
    assert row["goodput_frac"] == pytest.approx(slow.good / (num - window.num_warmup - window.num_cooldown))
    assert row["tokens_per_step"] == pytest.approx(slow.tokens / slow.steps, rel=1e-12)
    assert row["mean_running"] == pytest.approx(slow.running, rel=1e-12)
    assert row["spec_decode_num_drafts"] == slow.drafts
    assert row["spec_decode_draft_tokens"] == slow.draft_tokens
    assert row["spec_decode_accepted_tokens"] == slow.accepted
    assert run.speculation.accepted_per_pos.tolist() == slow.per_pos
    assert run.speculation.reached_per_pos.tolist() == slow.reached
    usd = 3.6 * 2 / 3600 / (slow.tokens / slow.seconds) * 1e6
    assert row["usd_per_mtok_output"] == pytest.approx(usd, rel=1e-12)
    assert row["output_tok_s_gpu"] == pytest.approx(slow.tokens / slow.seconds / 2, rel=1e-12)
    if slow.drafts:
        assert row["spec_decode_acceptance_rate"] == pytest.approx(100 * slow.accepted / slow.draft_tokens)
        assert row["spec_decode_acceptance_length"] == pytest.approx(1 + slow.accepted / slow.drafts)


@pytest.mark.parametrize("seed", range(6))
def test_speculation_identities(toy_run: ToyRun, seed: int) -> None:
    record = toy_run(concurrency=5, num=70, k=seed, seed=seed)
    run = measured(record, 5)
    counts = run.speculation
    places = np.arange(len(counts.histogram))
    assert counts.histogram.sum() == counts.num_drafts
    assert (places * counts.histogram).sum() == counts.num_accepted_tokens <= counts.num_draft_tokens
    assert counts.accepted_per_pos.sum() == counts.num_accepted_tokens
    assert counts.drafted_per_pos.sum() == counts.num_draft_tokens
    assert counts.tokens_histogram.sum() == counts.num_steps
    assert (np.arange(len(counts.tokens_histogram)) * counts.tokens_histogram).sum() == counts.num_tokens
    assert counts.num_tokens == counts.num_accepted_tokens + counts.num_steps - counts.num_trimmed_tokens
    inside = run.steps
    assert int(record.steps.emitted_tokens[inside].sum()) == counts.num_tokens
    assert int(record.steps.draft_tokens[inside].sum()) == counts.num_draft_tokens
    details = acceptance_details(run)
    assert details["histogram"] == counts.histogram.tolist()
    assert (counts.conditional_rates >= counts.per_position_rates).all()


def test_conditional_and_unconditional_rates_with_varying_k(toy_run: ToyRun) -> None:
    """Two drafts of 2 tokens accepting 2 and 0, one of 1 accepting 1: both denominators by hand."""
    record = toy_run(concurrency=1, num=3, k=0)
    drafted, accepted = np.zeros_like(record.drafted), np.zeros_like(record.accepted)
    places = np.flatnonzero(record.emission_step >= 0)[1:4]
    drafted[places], accepted[places] = (2, 2, 1), (2, 0, 1)
    run = measured(replace(record, drafted=drafted, accepted=accepted), 3)
    assert run.speculation.per_position_rates.tolist() == [2 / 3, 1 / 3]
    assert run.speculation.per_position_rates_drafted.tolist() == [2 / 3, 1 / 2]
    assert run.speculation.conditional_rates.tolist() == [2 / 3, 1.0]


def test_closed_loop_window_holds_the_same_completions_whatever_the_speed(toy_run: ToyRun) -> None:
    record = toy_run(concurrency=6, num=90)
    window = measurement_window(record, Loop(6))
    assert (window.num_warmup, window.num_cooldown, window.steady) == (9, 6, True)
    finishes = np.sort(record.requests.finish_ns)
    assert window.start_ns == finishes[8]
    assert window.end_ns == finishes[90 - 6]
    running = record.steps.running[(record.steps.start_ns >= window.start_ns) & (record.steps.start_ns < window.end_ns)]
    assert set(running.tolist()) == {6}  # never the drain


def test_explicit_warmup_wins_and_short_runs_are_measured_whole(toy_run: ToyRun) -> None:
    record = toy_run(concurrency=6, num=60)
    assert measurement_window(record, Loop(6, warmup_requests=20, cooldown_requests=3)).measured.sum() == 37
    short = measurement_window(toy_run(concurrency=4, num=4), Loop(8))
    assert not short.steady
    assert short.measured.all()
    assert measurement_window(toy_run(concurrency=1, num=1), Loop(1)).measured.all()


def test_a_window_of_a_few_steps_between_start_and_drain_is_no_window(toy_run: ToyRun) -> None:
    """200 requests of 128 users: 66 are warm-up and after the 73rd finish the drain begins."""
    record = toy_run(concurrency=128, num=200, slots=128)
    assert not measurement_window(record, Loop(128)).steady
    assert measurement_window(toy_run(concurrency=64, num=200, slots=64), Loop(64)).steady


def test_throughput_over_the_window_is_unbiased(toy_run: ToyRun) -> None:
    """A closed loop's rate is known: c slots always busy, so tokens per second = emitting per step / step time."""
    record = toy_run(concurrency=4, num=4000, k=0)
    row = summary_row(measured(record, 4))
    assert row["output_throughput"] == pytest.approx(4 / 0.014, rel=1e-3)
    assert row["mean_running"] == pytest.approx(4.0)


def test_saturation_is_flagged_only_when_the_backlog_grows(toy_run: ToyRun) -> None:
    # 8 slots, 18 ms per step, about 15 output tokens at 1 token per step: capacity about 8/(15 x 0.018) = 29 req/s
    flags = [measured(toy_run(num=600, rate=rate, k=0, seed=s), None) for rate in (10.0, 60.0) for s in range(5)]
    saturated = [summary_row(run)["saturated"] for run in flags]
    assert saturated == [False] * 5 + [True] * 5
    assert summary_row(measured(toy_run(concurrency=50, num=300), 50))["saturated"] is False


def test_unfinished_and_rejected_requests_count_as_failed_and_break_the_slo(toy_run: ToyRun) -> None:
    record = toy_run(concurrency=3, num=30)
    status, finish = record.requests.status.copy(), record.requests.finish_ns.copy()
    status[[12, 14]], finish[[12, 14]] = (Status.REJECTED, Status.UNFINISHED), -1
    cut = replace(record, requests=replace(record.requests, status=status, finish_ns=finish))
    row, full = summary_row(measured(cut, 3)), summary_row(measured(record, 3))
    assert (row["failed"], row["rejected"], full["failed"]) == (2, 1, 0)
    assert row["goodput_frac"] <= full["goodput_frac"]  # type: ignore[operator]
    columns = request_columns(measured(cut, 3), ("default",))
    assert columns["status"][[11, 12, 14]].tolist() == ["finished", "rejected", "unfinished"]
    assert np.isnan(columns["e2el_ms"][[12, 14]]).all()


def test_one_token_outputs_have_no_tpot_but_may_be_good(toy_run: ToyRun) -> None:
    record = toy_run(concurrency=2, num=40)
    ones = record.requests.output_tokens == 1
    assert ones.any()
    run = measure_run(record, Measure(Loop(2), Slo(tpot=1e-6)))
    assert run.good.tolist() == ones.tolist()
    assert np.isnan(run.times.tpot).tolist() == ones.tolist()


def test_empty_values_are_none_with_a_reason(toy_run: ToyRun) -> None:
    record = toy_run(concurrency=1, num=1, k=0)
    row = summary_row(measure_run(record, Measure(Loop(1))))
    missing = [key for key, value in row.items() if value is None]
    assert {"request_goodput", "spec_decode_acceptance_length", "usd_per_mtok_output"} <= set(missing)
    assert all(null_reason(key) for key in missing)
    assert not any(isinstance(value, float) and math.isnan(value) for value in row.values())


@pytest.mark.parametrize(("setup", "concurrency"), CASES)
def test_tables_conserve_what_happened(toy_run: ToyRun, setup: dict[str, int], concurrency: int | None) -> None:
    record = toy_run(**setup)
    run = measured(record, concurrency)
    timeline = timeline_columns(record, 37)
    width = float(np.diff(timeline["t_s"])[0])
    assert (timeline["output_tok_s"] * width).sum() == pytest.approx(record.requests.output_tokens.sum())
    integral = (record.steps.running * record.steps.duration_ns).sum() / 1e9
    assert (timeline["running"] * width).sum() == pytest.approx(integral, rel=1e-9)
    requests = request_columns(run, ("default",))
    assert requests["draft_tokens"].sum() == record.steps.draft_tokens.sum()
    assert requests["num_chunks"].sum() == (record.emission_step >= 0).sum()
    for row in range(setup["num"]):
        gaps = run.emissions.gap_ns[run.emissions.gap_row == row] / 1e6
        if gaps.size:
            assert requests["itl_p99_ms"][row] == pytest.approx(np.percentile(gaps, 99), rel=1e-12)
            assert requests["itl_max_ms"][row] == gaps.max()
        else:
            assert np.isnan(requests["itl_mean_ms"][row])


def test_shares_and_histograms_add_up(toy_run: ToyRun) -> None:
    run = measured(toy_run(concurrency=4, num=50), 4)
    row = summary_row(run)
    shares = [row[f"{part}_frac"] for part in ("draft_time", "verify_time", "prefill_time", "overhead")]
    assert sum(shares) == pytest.approx(1.0)  # type: ignore[arg-type]
    assert sum(step_time_s(run).values()) == pytest.approx(run.record.steps.duration_ns[run.steps].sum() / 1e9)
    gaps = run.window.measured[run.emissions.gap_row].sum()
    histogram = itl_histogram(run)
    assert sum(histogram["counts"]) == gaps  # type: ignore[call-overload]
    assert len(histogram["edges_ms"]) == len(histogram["counts"]) + 1  # type: ignore[arg-type]
    requests = run.record.requests
    by_hand = [p + j for p, o in zip(requests.prompt_tokens, requests.output_tokens, strict=True) for j in range(o)]
    assert mean_decode_context(run) == pytest.approx(np.mean(by_hand))


def test_k_and_its_changes(toy_run) -> None:
    """Steps of the window whose K differs from the step before, which may lie outside; drafts per request and step."""
    record = toy_run(num=60, concurrency=4, k=3)
    k = np.resize([3, 3, 0, 1], len(record.steps.start_ns))
    record = replace(record, steps=replace(record.steps, num_draft_tokens=k))
    run = measure_run(record, Measure(Loop(4)))
    row, inside = summary_row(run), np.flatnonzero(run.steps)
    assert row["k_switches"] == sum(k[i] != k[i - 1] for i in inside.tolist() if i)
    assert row["k_switches"] > 10
    assert row["k_mean"] == run.speculation.num_draft_tokens / run.speculation.num_steps
    assert row["k_mean"] < row["effective_k_mean"]
