"""Batches of clones: copies of one request, all at once, timed from the first prompt to the last token.

SpecDecode-Bench (arXiv 2601.11580): offline generation, greedy, prefix caching off, the end of the output honoured.
Clones accept alike, so they stay in lockstep. The rate is the mean over requests of tokens over time.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.acceptance.base import Tape
from sim.acceptance.recording import read_recording
from sim.cost.base import OP_GROUPS
from sim.metrics.record import Floats, RunRecord, StepRecord
from sim.rng import Streams
from sim.scenario.build import ArmSetup, draw_tape, serve, set_up
from sim.scenario.schema import Scenario
from sim.validation.harness.base import ArmTimes, Recorded
from sim.workload.requests import RequestTable

#: Requests of a recording that are used, evenly spread over its lengths; SpecDecode-Bench timed as many at most.
MOST_REQUESTS = 100
#: As many for shares, which hardly differ between requests.
SHARE_REQUESTS = 10


def clones(scenario: Scenario, arm: str, recorded: Recorded | None) -> ArmTimes:
    """Every request as a batch of its own, as many clones as the closed loop has users."""
    setup = set_up(scenario, arm, Path())
    found = [_times(record) for record in _batches(scenario, setup, recorded, MOST_REQUESTS)]
    return ArmTimes(*np.mean(found, axis=0).tolist())


class Shares(NamedTuple):
    """Parts of the time of all steps as the source timed them, adding up to 1.

    SpecDecode-Bench's `benchmarks/profiler.py` and its hooks in vLLM's `gpu_model_runner.py`: the clock around the
    target's layers waits for the GPU at both ends; the one around drafting does not, so it sees the CPU launch the
    passes, not the passes.

    Attributes:
        draft: launching the drafter's passes; all of it where the CPU drafts.
        verify: the target's layers, without LM head and sampler.
        overhead: all else: LM head, sampler, host, and what the drafter's kernels take beyond their launches.
    """

    draft: float
    verify: float
    overhead: float


def clone_shares(scenario: Scenario, arm: str, recorded: Recorded | None) -> Shares:
    """Where the time of decode steps goes."""
    setup = set_up(scenario, arm, Path())
    parts = sum(_step_parts(setup, record.steps) for record in _batches(scenario, setup, recorded, SHARE_REQUESTS))
    draft, verify, total = np.asarray(parts).tolist()
    return Shares(draft / total, verify / total, 1.0 - (draft + verify) / total)


_LM_HEAD = OP_GROUPS.index("lm_head")


def _step_parts(setup: ArmSetup, steps: StepRecord) -> Floats:
    """Nanoseconds of decode steps: drafting as a clock shows it that does not wait for the GPU, layers, everything."""
    decode, method = steps.prefill_tokens == 0, setup.arm.speculative_config
    if method.drafts_on_cpu:
        draft = float(steps.draft_ns[decode].sum())
    else:
        passes = sum(map(method.num_draft_passes, steps.num_draft_tokens[decode].tolist()))
        draft = 1e9 * setup.cost.draft_launch_s * passes
    layers = steps.target_ns[decode].sum() - 1e9 * steps.op_seconds[decode, _LM_HEAD].sum()
    return np.array([draft, layers, steps.duration_ns[decode].sum()])


def _batches(scenario: Scenario, setup: ArmSetup, recorded: Recorded | None, most: int) -> Iterator[RunRecord]:
    """Runs of one request each, at most so many, evenly spread over all."""
    streams = Streams(scenario.seed, 0)
    requests, tape = _recorded(setup, recorded) if recorded else _drawn(scenario, setup, streams)
    batch = getattr(scenario.workload.arrivals, "max_concurrency", 1)
    for row in np.unique(np.linspace(0, len(requests) - 1, most).round().astype(int)).tolist():
        yield serve(scenario, setup, *cloned(requests, tape, row, batch), streams)


def cloned(requests: RequestTable, tape: Tape, row: int, batch: int) -> tuple[RequestTable, Tape]:
    """`batch` copies of one row, all at 0, and of its acceptance."""
    zeros, start = np.zeros(batch, np.int64), int(requests.output_offset[row])
    there = slice(start, start + int(requests.output_tokens[row]))
    same = RequestTable(
        arrival_ns=zeros,
        prompt_tokens=np.full(batch, requests.prompt_tokens[row]),
        output_tokens=np.full(batch, requests.output_tokens[row]),
        class_id=zeros,
        speculate=np.ones(batch, np.bool_),
    )
    copies = Tape(
        accepted=np.tile(tape.accepted[there], batch),
        proposed=None if tape.proposed is None else np.tile(tape.proposed[there], batch),
        by_k={k: np.tile(accepted[there], batch) for k, accepted in tape.by_k.items()},
        reach=None if tape.reach is None else np.tile(tape.reach[there], (batch, 1)),
    )
    return same, copies


def _recorded(setup: ArmSetup, recorded: Recorded) -> tuple[RequestTable, Tape]:
    """The recorded requests themselves; plain decoding takes their lengths."""
    recording = read_recording(recorded.path, recorded.method, False)
    tape = recording.tape(max(setup.arm.speculative_config.max_draft_tokens, 1))
    if not setup.arm.speculates:
        tape = replace(tape, accepted=np.zeros_like(tape.accepted), proposed=None)
    return recording.table(), tape


def _drawn(scenario: Scenario, setup: ArmSetup, streams: Streams) -> tuple[RequestTable, Tape]:
    requests = scenario.workload.requests(streams, Path())
    return requests, draw_tape(setup.arm, requests, streams)


def _times(record: RunRecord) -> ArmTimes:
    """From the start to the last token of all clones."""
    rows, steps = record.requests, record.steps
    seconds = rows.finish_ns.max() * 1e-9
    after_first = (rows.finish_ns - rows.first_token_ns) * 1e-6 / np.maximum(rows.emitted_tokens - 1, 1)
    return ArmTimes(
        tokens_per_s=float(rows.emitted_tokens.sum() / seconds),
        tpot_ms=float(after_first.mean()),
        ttft_ms=float(rows.first_token_ns.mean() * 1e-6),
        e2el_s=float(rows.finish_ns.mean() * 1e-9),
        running=float((steps.running * steps.duration_ns).sum() / steps.duration_ns.sum()),
    )
