"""The production scheduler plans the same steps as a tiny independent one, on random small scenarios."""

import dataclasses
import importlib.util
import itertools
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from sim.acceptance.base import NEVER, Tape
from sim.draft_length.base import TableRule
from sim.errors import CapacityError
from sim.scheduler import waiting
from sim.scheduler.plan import SchedulerConfig
from sim.scheduler.schedule import Scheduler
from sim.workload.requests import RequestTable, SharedPrefixes


def _load_reference():
    path = Path(__file__).with_name("reference_scheduler.py")
    spec = importlib.util.spec_from_file_location("reference_scheduler", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference_scheduler"] = module
    spec.loader.exec_module(module)
    return module


reference = _load_reference()
NUM_SCENARIOS = 1000
NUM_OTHER = 500
NUM_SHARING = 600
MAX_STEPS = 4000
MAX_K = 4
MAX_DEPTH = 3
MAX_FRUITLESS = 20


@dataclass(frozen=True)
class Case:
    config: object
    requests: list[dict]
    arrivals: dict[int, list[int]]  # step -> rows


def random_drafts(rng: random.Random):
    """A fixed K or a batch table, and the largest K in it."""
    if rng.random() < 0.7:
        k = rng.randint(0, 4)
        return k, k
    edges = sorted(rng.sample(range(1, 9), 2))
    table = [(1, edges[0], rng.randint(0, 4)), (edges[0] + 1, edges[1], rng.randint(0, 4)), (edges[1] + 1, 99, 0)]
    return table, max(k for _, _, k in table)


def random_request(rng: random.Random, max_k: int) -> dict:
    out = rng.randint(1, 30)
    proposed = [rng.randint(0, max_k) for _ in range(out)] if rng.random() < 0.3 else None
    p = rng.random()
    tape = [sum(1 for _ in range(max_k) if rng.random() < p) for _ in range(out)]
    if proposed is not None:
        tape = [min(a, b) for a, b in zip(tape, proposed, strict=True)]
    return {
        "prompt_tokens": rng.randint(1, 40),
        "output_tokens": out,
        "speculate": rng.random() < 0.8,
        "tape": tape,
        "proposed": proposed,
    }


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    drafts, max_k = random_drafts(rng)
    block_size = rng.choice([1, 2, 4, 8])
    lookahead = max_k if rng.random() < 0.6 else 0
    max_model_len = rng.choice([24, 48, 80, 200])
    budget = rng.randint(4, 64)
    # A pool that holds a few of the longest requests, or plenty; sometimes less than one of them.
    tokens = rng.choice([30, 60, 90, 120, 2000]) + lookahead
    config = reference.ReferenceConfig(
        max_num_seqs=rng.randint(1, 8),
        max_num_scheduled_tokens=budget,
        max_model_len=max_model_len,
        block_size=block_size,
        num_blocks=-(-tokens // block_size),
        lookahead_tokens=lookahead,
        long_prefill_token_threshold=rng.choice([0, 0, rng.randint(1, 20)]),
        enable_chunked_prefill=rng.random() < 0.75,
        scheduler_reserve_full_isl=rng.random() < 0.6,
        watermark=rng.choice([0.0, 0.0, 0.05, 0.2]),
        drafts=drafts,
        max_fruitless_preemptions=MAX_FRUITLESS,
    )
    requests = [random_request(rng, max_k) for _ in range(rng.randint(1, 12))]
    arrivals: dict[int, list[int]] = {}
    step = 0
    for row in range(len(requests)):
        step += rng.choice([0, 0, 1, rng.randint(0, 30)])
        arrivals.setdefault(step, []).append(row)
    return Case(config, requests, arrivals)


def with_trees(case: Case, seed: int) -> Case:
    """The same case with token trees: which nodes the target walks to, at random, at every position."""
    rng, drafts = random.Random(seed), case.config.drafts
    nodes = drafts if isinstance(drafts, int) else max(k for _, _, k in drafts)
    for request in case.requests:
        depths = (rng.randint(0, min(nodes, MAX_DEPTH)) for _ in range(request["output_tokens"]))
        request["reach"] = [sorted(rng.sample(range(1, nodes + 1), depth)) for depth in depths]
        request["proposed"] = None
    return case


def sharing_case(seed: int) -> Case:
    """A random case with prefix caching: families of requests that begin alike, in a pool that evicts."""
    case, rng = random_case(seed), random.Random(seed + 1_000_000)
    requests, fresh = [dict(r) for r in case.requests], itertools.count()
    for row, r in enumerate(requests):
        r["parent"] = rng.randrange(row) if row and rng.random() < 0.8 else -1
        parent = requests[r["parent"]]["content"] if r["parent"] >= 0 else []
        longest = min(len(parent), r["prompt_tokens"])
        r["shared"] = longest if rng.random() < 0.5 else rng.randint(0, longest)
        own = r["prompt_tokens"] + r["output_tokens"] - r["shared"]
        r["content"] = parent[: r["shared"]] + list(itertools.islice(fresh, own))
    config = dataclasses.replace(case.config, enable_prefix_caching=True, use_eagle=rng.random() < 0.5)
    return Case(config, requests, case.arrivals)


def other_engine_case(seed: int) -> Case:
    """A random case, sharing prefixes or not, with prefill and decode apart, output reserved, or both."""
    case = sharing_case(seed) if seed % 2 else random_case(seed)
    rng, drafts = random.Random(seed + 2_000_000), case.config.drafts
    most = drafts if isinstance(drafts, int) else max(k for _, _, k in drafts)
    apart, reserve = rng.choice([(True, False), (False, True), (True, True)])
    config = dataclasses.replace(
        case.config, separate_prefill=apart, reserve_output=reserve, draft_slots=most if reserve else 0
    )
    return Case(config, case.requests, case.arrivals)


def waiting_case(seed: int) -> Case:
    """A random case, sharing prefixes or not, whose prompts wait for a batch, with output reserved or not."""
    case = sharing_case(seed) if seed % 2 else random_case(seed)
    rng, drafts = random.Random(seed + 3_000_000), case.config.drafts
    most = drafts if isinstance(drafts, int) else max(k for _, _, k in drafts)
    reserve = rng.random() < 0.5
    config = dataclasses.replace(
        case.config,
        batch_wait_timeout_iters=rng.choice([1, 3, 10]),
        batch_wait_max_tokens_ratio=rng.choice([0.1, 0.5, 1.0]),
        reserve_output=reserve,
        draft_slots=most if reserve else 0,
    )
    return Case(config, case.requests, case.arrivals)


def reference_steps(case: Case) -> Iterator[tuple]:
    """What the reference does, step by step: rejected, plan, preempted, dropped, emitted, free blocks."""
    s = reference.ReferenceScheduler(case.config, case.requests)
    last_arrival = max(case.arrivals)
    for step in range(MAX_STEPS):
        rejected = [row for row in case.arrivals.get(step, []) if not s.add(row)]
        plan = s.schedule()
        preempted, dropped = list(s.preempted), list(s.dropped)
        emitted = s.commit()
        yield rejected, plan, preempted, dropped, emitted, len(s.free), sum(sum(hits) for hits in s.hits.values())
        if step >= last_arrival and not s.waiting and not s.running:
            return
    yield "never ends"


def shared_prefixes(requests: list[dict]) -> SharedPrefixes | None:
    if not any("parent" in r for r in requests):
        return None
    columns = [[r[key] for r in requests] for key in ("parent", "shared")]
    return SharedPrefixes(*(np.array(column, np.int64) for column in columns))


def production(case: Case) -> Scheduler:
    requests = case.requests
    table = RequestTable(
        arrival_ns=np.zeros(len(requests), np.int64),
        prompt_tokens=np.array([r["prompt_tokens"] for r in requests], np.int64),
        output_tokens=np.array([r["output_tokens"] for r in requests], np.int64),
        class_id=np.zeros(len(requests), np.int64),
        speculate=np.array([r["speculate"] for r in requests]),
        prefixes=shared_prefixes(requests),
    )
    accepted = np.array([a for r in requests for a in r["tape"]], np.uint8)
    proposed = np.array([p for r in requests for p in r["proposed"] or [MAX_K] * r["output_tokens"]], np.uint8)
    ask = any(r["proposed"] is not None for r in requests)
    reach = None
    if any("reach" in r for r in requests):
        padded = [(position + [NEVER] * MAX_DEPTH)[:MAX_DEPTH] for r in requests for position in r["reach"]]
        reach = np.array(padded, np.uint8)
    limits = {k: v for k, v in vars(case.config).items() if k not in ("drafts", "max_fruitless_preemptions")}
    rule = TableRule.of((n, case.config.drafts_for(n)) for n in range(1, case.config.max_num_seqs + 1))
    return Scheduler(SchedulerConfig(**limits), table, Tape(accepted, proposed if ask else None, reach=reach), rule)


def production_steps(case: Case) -> Iterator[tuple]:
    """What the production scheduler does, in the layout of `reference_steps`."""
    s = production(case)
    last_arrival = max(case.arrivals)
    for step in range(MAX_STEPS):
        rejected = [row for row in case.arrivals.get(step, []) if not s.add(row)]
        plan = s.schedule()
        described = s.describe(plan)
        dropped = s.waiting.take_rejected()
        emitted = s.commit(plan)
        s.check()
        columns = (emitted.rows.tolist(), emitted.tokens.tolist(), emitted.accepted.tolist())
        hits = int(s.waiting.cached_tokens.clip(0).sum() + s.waiting.restored_tokens.sum())
        yield rejected, described, plan.preempted, dropped, list(zip(*columns, strict=True)), s.pool.free, hits
        if step >= last_arrival and s.idle:
            return
    yield "never ends"


def run(steps: Iterator[tuple]) -> list[tuple]:
    """All steps; a run that makes no progress ends with a marker instead."""
    seen = []
    try:
        seen.extend(steps)  # keeps what came before an error
    except (reference.NoProgressError, CapacityError):
        seen.append("no progress")
    return seen


def first_difference(case: Case) -> str | None:
    expected, found = run(reference_steps(case)), run(production_steps(case))
    for step, (a, b) in enumerate(zip_longest(expected, found)):
        if a != b:
            return f"step {step}\n reference  {a}\n production {b}\n {case.config}"
    return None


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(waiting, "MAX_FRUITLESS_PREEMPTIONS", MAX_FRUITLESS)


def test_same_schedules_as_the_reference():
    differences = {seed: d for seed in range(NUM_SCENARIOS) if (d := first_difference(random_case(seed)))}
    assert not differences, "\n".join(f"seed {seed}: {d}" for seed, d in list(differences.items())[:3])


def test_same_schedules_and_hits_with_prefix_caching():
    differences = {seed: d for seed in range(NUM_SHARING) if (d := first_difference(sharing_case(seed)))}
    assert not differences, "\n".join(f"seed {seed}: {d}" for seed, d in list(differences.items())[:3])


def test_trees_are_scheduled_and_cut_as_the_reference_does():
    """Trees whose end the token budget or max_model_len cuts off keep their first nodes."""
    cases = {seed: with_trees(random_case(seed), seed) for seed in range(200)}
    differences = {seed: d for seed, case in cases.items() if (d := first_difference(case))}
    assert not differences, "\n".join(f"seed {seed}: {d}" for seed, d in list(differences.items())[:3])


def test_same_schedules_with_prefill_apart_and_with_output_reserved():
    differences = {seed: d for seed in range(NUM_OTHER) if (d := first_difference(other_engine_case(seed)))}
    assert not differences, "\n".join(f"seed {seed}: {d}" for seed, d in list(differences.items())[:3])


def test_same_schedules_with_batches_waited_for():
    differences = {seed: d for seed in range(NUM_OTHER) if (d := first_difference(waiting_case(seed)))}
    assert not differences, "\n".join(f"seed {seed}: {d}" for seed, d in list(differences.items())[:3])


def test_with_prefill_apart_no_step_mixes_and_with_output_reserved_nobody_is_preempted():
    """Seen in the plans alone; a gap of one token counts as decode, also at the end of a prompt."""
    waited = held_back = 0
    for seed in range(300):
        case = other_engine_case(seed)
        s = production(case)
        for row in range(len(s.table)):
            s.add(row)
        for _ in range(400):
            if s.idle:
                break
            gaps = dict(zip(s.running.row.tolist(), s.running.lag.tolist(), strict=True))
            try:
                plan = s.schedule()
            except CapacityError:  # a pool too small for progress
                assert not case.config.reserve_output
                break
            held_back += bool(case.config.reserve_output and s.waiting.queue)
            assert not (case.config.reserve_output and plan.preempted)
            if case.config.separate_prefill:
                turns = {gaps.get(row, 0) == 1 for row, _, _ in s.describe(plan)}
                assert len(turns) <= 1
                waited += turns == {False} and 1 in gaps.values()
            s.commit(plan)
    assert min(waited, held_back) > 100


def test_scenarios_reach_the_rare_branches():
    """The generator is worth its name: preemptions in about a third of the cases, drops, rejections, no progress."""
    cases = [random_case(seed) for seed in range(300)]
    runs = [run(reference_steps(case)) for case in cases]
    steps = [[s for s in r if s != "no progress"] for r in runs]
    assert 0.25 < np.mean([any(s[2] for s in r) for r in steps]) < 0.5
    assert any(s[0] for r in steps for s in r)
    assert any(s[3] for r in steps for s in r)
    assert any(r[-1] == "no progress" for r in runs)
    assert not any("never ends" in r for r in runs)
    assert sum(d > 0 for r in steps for s in r for _, _, d in s[1]) > 1000


def test_sharing_scenarios_reach_the_rare_branches():
    """Hits in most cases; some of them after preemptions, after evictions, and beside duplicate blocks."""
    hits = evictions = restored = copies = 0
    for seed in range(150):
        s = production(sharing_case(seed))
        for row in range(len(s.table)):
            s.add(row)
        for _ in range(400):
            if s.idle:
                break
            s.commit(s.schedule())
            copies += bool(s.cache._later_copies)
        hits += bool((s.waiting.cached_tokens > 0).any())
        restored += bool(s.waiting.restored_tokens.any())
        evictions += s.cache.evictions > 0
    assert hits > 75
    assert min(evictions, restored) > 15
    assert copies > 15
