"""What must not change a run, or must change it one way: leaps, K = 0, unused room, shifts, scale, hash seed."""

import dataclasses
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from sim.metrics.record import RunRecord, Status

h = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("server_harness.py"))))


def test_leaps_change_nothing():
    for seed in range(60):
        limits = dataclasses.replace(h.config(seed), enable_chunked_prefill=seed % 4 > 0)
        args = dict(k=seed % 4, alpha=0.7, users=(seed % 3) * 5, drafter=h.PerDraft(100_000))
        assert h.digest(h.serve(h.workload(seed), limits, **args)) == h.digest(
            h.serve(h.workload(seed), limits, leap=False, **args)
        )


def test_acceptance_does_not_matter_at_k_0():
    for seed in range(20):
        w, limits = h.workload(seed), dataclasses.replace(h.config(seed), lookahead_tokens=0)
        assert h.digest(h.serve(w, limits, k=0, alpha=0.9)) == h.digest(h.serve(w, limits, k=0, alpha=0.0))


def test_acceptance_0_is_strictly_slower_at_every_batch():
    """Rejected drafts still cost verification, even with a free drafter; the loss grows with the batch."""
    w = dataclasses.replace(h.workload(1, n=96, output=60))
    loss = []
    for users in (1, 2, 4, 8, 16, 32, 48):
        plain, spec = (h.serve(w, h.ROOMY, k=k, alpha=0.0, users=users) for k in (0, 3))
        assert plain.steps.num_seqs.tolist() == spec.steps.num_seqs.tolist()  # the same steps, only dearer
        loss.append(_makespan(spec) / _makespan(plain))
    assert min(loss) > 1
    assert loss == sorted(loss)


def test_acceptance_1_emits_whole_drafts():
    run = h.serve(h.workload(1), h.ROOMY, k=4, alpha=1.0)
    at = np.flatnonzero(run.drafted)
    assert len(at) > 50
    assert (run.accepted[at] == run.drafted[at]).mean() > 0.7  # less only where the output, and with it the tape, ends


def test_steps_never_increase_with_k_or_acceptance():
    """Exact on every path because tapes with one flag per position are monotone."""
    for seed in range(10):
        w = h.workload(2 * seed + 1)
        by_k = [[len(c) for c in h.chunks(h.serve(w, h.ROOMY, k=k, alpha=0.7))] for k in range(6)]
        by_alpha = [[len(c) for c in h.chunks(h.serve(w, h.ROOMY, k=4, alpha=a))] for a in (0.0, 0.3, 0.6, 0.9, 1.0)]
        for counts in (by_k, by_alpha):
            assert (np.diff(np.array(counts), axis=0) <= 0).all()


def test_room_that_is_not_used_changes_nothing():
    """More KV blocks, budget or slots than were ever used."""
    for seed in range(10):
        w, run = h.workload(seed), h.serve(h.workload(seed), h.ROOMY)
        peak = run.steps
        tight = dataclasses.replace(
            h.ROOMY,
            num_blocks=int(peak.kv_blocks_used.max()) + 8,
            max_num_scheduled_tokens=int(peak.num_tokens.max()),
            max_num_seqs=int(peak.running.max()),
        )
        for limits in (tight, dataclasses.replace(h.ROOMY, num_blocks=99_999, max_num_seqs=500)):
            assert h.digest(h.serve(w, limits)) == h.digest(run)


def test_shifted_arrivals_shift_everything():
    """Nothing depends on where the clock starts."""
    shift = 123_456_789
    for seed in range(10):
        w, limits = h.workload(seed), h.config(seed)
        later = dataclasses.replace(w, table=dataclasses.replace(w.table, arrival_ns=w.table.arrival_ns + shift))
        a, b = h.serve(w, limits), h.serve(later, limits)
        assert (b.steps.start_ns - a.steps.start_ns == shift).all()
        for name in ("arrival_ns", "first_scheduled_ns", "first_token_ns", "finish_ns"):
            x, y = getattr(a.requests, name), getattr(b.requests, name)
            assert (y - x)[x >= 0].tolist() == [shift] * int((x >= 0).sum())


def test_twice_the_step_time_is_twice_the_latency():
    """All times scale with the cost, to the rounding of each step."""
    for seed in range(10):
        a, b = (h.serve(h.workload(seed), h.config(seed), users=6, cost=h.LinearCost(scale=s)) for s in (1, 2))
        assert (b.requests.finish_ns == 2 * a.requests.finish_ns)[a.requests.status == Status.FINISHED].all()


def test_same_bytes_whatever_the_hash_seed():
    found = set()
    for hash_seed in ("0", "1", "4711"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed}
        out = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, check=True)
        found.add(out.stdout.strip())
    assert found == {_fingerprint()}


def _makespan(run: RunRecord) -> int:
    return int(run.steps.start_ns[-1] + run.steps.duration_ns[-1])


def _fingerprint() -> str:
    return "".join(h.digest(h.serve(h.workload(s), h.config(s), users=s)) for s in range(4))


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    print(_fingerprint())
