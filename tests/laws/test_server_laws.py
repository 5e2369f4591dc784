"""Laws that every run of the server obeys, on random small workloads: conservation, limits, causality, Little."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sim.metrics.record import RunRecord, Status
from sim.scheduler.plan import SchedulerConfig

h = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("server_harness.py"))))
SEEDS = range(120)
Runs = list[tuple[SimpleNamespace, SchedulerConfig, RunRecord]]


def many_runs(overlapped: bool) -> Runs:
    found = []
    for s in SEEDS:
        run = h.serve(h.workload(s), h.config(s), k=s % 5, users=(s % 3) * 4, overlapped=overlapped)
        found.append((h.workload(s), h.config(s), run))
    assert sum(int(r.requests.num_preemptions.sum()) > 0 for _, _, r in found) > 20
    return found


@pytest.fixture(scope="module")
def sync_runs() -> Runs:
    return many_runs(overlapped=False)


@pytest.fixture(scope="module", params=[False, True], ids=["sync", "async"])
def runs(request) -> Runs:
    return many_runs(request.param)


def test_every_request_ends_once(runs):
    for w, limits, run in runs:
        status, too_long = run.requests.status, w.table.prompt_tokens >= limits.max_model_len
        assert set(status.tolist()) <= {Status.FINISHED, Status.REJECTED}
        assert (status[too_long] == Status.REJECTED).all()
        assert (status[~too_long] == Status.FINISHED).all()


def test_output_tokens_are_emitted_exactly_once(runs):
    for w, limits, run in runs:
        owed = np.minimum(w.table.output_tokens, limits.max_model_len - w.table.prompt_tokens)
        assert run.steps.emitted_tokens.sum() == owed[run.requests.status == Status.FINISHED].sum()
        for row, starts in enumerate(h.chunks(run)):
            assert run.requests.status[row] == Status.REJECTED or starts[0] == 0
            assert len(starts) == 0 or starts[-1] < owed[row]
            at = run.requests.output_offset[row] + starts
            assert (np.diff(starts) == run.accepted[at][:-1].astype(int) + 1).all()
            assert (np.diff(run.emission_step[at]) > 0).all()


def test_every_computed_token_is_accounted_for(sync_runs):
    """Computed = prompt and output of finished requests + recomputed after preemption + rejected drafts."""
    for w, _, run in sync_runs:
        assert (run.steps.num_seqs <= run.steps.running).all()
        assert run.steps.draft_tokens.sum() == run.drafted.sum()
        assert run.steps.preemptions.sum() == run.requests.num_preemptions.sum()
        ledger = int(run.requests.recomputed_tokens.sum()) + int(run.drafted.sum()) - int(run.accepted.sum())
        for row, starts in enumerate(h.chunks(run)):
            if len(starts):
                at = run.requests.output_offset[row] + starts
                ledger += int(w.table.prompt_tokens[row]) + int(run.accepted[at].sum()) + len(starts) - 1
        assert run.steps.num_tokens.sum() == ledger


def test_step_limits(runs):
    for _, limits, run in runs:
        s = run.steps
        assert s.num_tokens.max() <= limits.max_num_scheduled_tokens
        assert s.num_tokens.min() >= 1
        assert s.running.max() <= limits.max_num_seqs
        assert s.kv_blocks_used.max() <= limits.num_blocks
        assert (s.accepted_tokens <= s.draft_tokens).all()
        assert (s.emitted_tokens <= s.num_emitting + s.accepted_tokens).all()
        # Asynchronous scheduling also verifies drafts of requests that turn out to have ended.
        assert s.draft_tokens.sum() >= run.drafted.sum()
        # A call that preempts the only request and so schedules nothing is no step.
        assert s.preemptions.sum() <= run.requests.num_preemptions.sum()


def test_causality(runs):
    for _, _, run in runs:
        q, s = run.requests, run.steps
        done = q.status == Status.FINISHED
        assert (q.first_scheduled_ns >= q.arrival_ns)[done].all()
        assert (q.first_token_ns > q.first_scheduled_ns)[done].all()
        assert (q.finish_ns >= q.first_token_ns)[done].all()
        assert (np.diff(s.start_ns) >= s.duration_ns[:-1]).all()
        assert (s.draft_ns + s.target_ns + s.host_ns == s.duration_ns).all()


def test_work_conserving(runs):
    """The server rests only while nothing is there: each gap between steps ends with an arrival."""
    for _, _, run in runs:
        q, s = run.requests, run.steps
        end = s.start_ns[:-1] + s.duration_ns[:-1]
        for i in np.flatnonzero(s.start_ns[1:] > end):
            waiting = (q.arrival_ns <= end[i]) & (q.finish_ns > end[i])
            assert not waiting.any()
            assert s.start_ns[i + 1] in q.arrival_ns


def test_little(sync_runs):
    """Requests in the system, integrated over time, are the sum of sojourn times: exact in whole nanoseconds."""
    for _, _, run in sync_runs:
        q, s = run.requests, run.steps
        done = q.status == Status.FINISHED
        arrival, finish = q.arrival_ns[done], q.finish_ns[done]
        # A request that arrives during step i - 1 is first counted by step i; one that arrives the moment a step starts
        # (a closed loop: its user saw the end of the step before) is late for it, unless it found the server idle.
        first = np.searchsorted(s.start_ns, arrival)
        busy = np.array([((arrival < t) & (finish > t)).any() for t in arrival])
        first = np.where((s.start_ns[first.clip(max=len(s.start_ns) - 1)] == arrival) & busy, first + 1, first)
        uncounted = np.append(s.start_ns, 0)[first] - arrival
        inside = int(((s.running + s.waiting) * s.duration_ns).sum()) + int(uncounted.sum())
        assert inside == int((finish - arrival).sum())
