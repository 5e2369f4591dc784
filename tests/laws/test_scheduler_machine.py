"""F6: the scheduler as a state machine. Requests arrive whenever Hypothesis likes; every step obeys the invariants."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim.acceptance.base import Tape
from sim.draft_length.base import TableRule
from sim.scheduler.plan import SchedulerConfig
from sim.scheduler.schedule import Scheduler
from sim.workload.requests import RequestTable, SharedPrefixes

NUM_ROWS = 16


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        lengths=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 20)), min_size=NUM_ROWS, max_size=NUM_ROWS),
        seed=st.integers(0, 2**32 - 1),
        k=st.integers(0, 4),
        block_size=st.sampled_from([1, 4, 16]),
        pool=st.integers(75, 200),  # always room for the longest request, its drafts and the next ones
        budget=st.integers(4, 80),
        max_num_seqs=st.integers(1, 8),
        reserve=st.booleans(),
        max_model_len=st.sampled_from([40, 60, 500]),
        caching=st.booleans(),
        use_eagle=st.booleans(),
        parents=st.lists(st.tuples(st.integers(0, NUM_ROWS), st.floats(0, 1)), min_size=NUM_ROWS, max_size=NUM_ROWS),
    )
    def start(
        self, lengths, seed, k, block_size, pool, budget, max_num_seqs, reserve, max_model_len,
        caching, use_eagle, parents,
    ):  # fmt: skip
        prompt, output = np.array(lengths, np.int64).T
        zeros = np.zeros(NUM_ROWS, np.int64)
        parent = np.array([p if p < row else -1 for row, (p, _) in enumerate(parents)])
        longest = np.where(parent < 0, 0, np.minimum(prompt, (prompt + output)[parent]))
        shared = (longest * np.array([share for _, share in parents])).astype(np.int64)
        prefixes = SharedPrefixes(parent, shared)
        self.table = RequestTable(zeros, prompt, output, zeros, np.ones(NUM_ROWS, np.bool_), prefixes=prefixes)
        self.config = SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_scheduled_tokens=budget,
            max_model_len=max_model_len,
            block_size=block_size,
            num_blocks=-(-(pool + k) // block_size),
            lookahead_tokens=k,
            scheduler_reserve_full_isl=reserve,
            enable_prefix_caching=caching,
            use_eagle=use_eagle,
        )
        tape = np.random.Generator(np.random.Philox(seed)).integers(0, k + 1, self.table.num_positions)
        self.k, self.scheduler = k, Scheduler(self.config, self.table, Tape(tape.astype(np.uint8)), TableRule.fixed(k))
        self.next_row, self.accepted_rows = 0, []
        self.emitted, self.owed = zeros.copy(), np.minimum(output, max_model_len - prompt)

    @precondition(lambda self: self.next_row < NUM_ROWS)
    @rule()
    def arrive(self):
        row, self.next_row = self.next_row, self.next_row + 1
        if self.scheduler.add(row):
            self.accepted_rows.append(row)
        else:
            assert self.table.prompt_tokens[row] >= self.config.max_model_len

    @rule()
    def step(self):
        scheduler, config = self.scheduler, self.config
        before = scheduler.num_preemptions.copy()
        plan = scheduler.schedule()
        described = scheduler.describe(plan)
        assert sum(tokens for _, tokens, _ in described) == plan.forward.num_tokens <= config.max_num_scheduled_tokens
        assert all(0 <= drafts <= min(self.k, tokens - 1) for _, tokens, drafts in described)
        assert (plan.preempted == []) or (plan.admitted == [])
        assert (scheduler.num_preemptions - before).sum() == len(plan.preempted)
        emitted = scheduler.commit(plan)
        assert (emitted.accepted <= emitted.drafts).all()
        assert (emitted.tokens >= 1).all()
        assert (emitted.tokens <= emitted.accepted + 1).all()
        assert (emitted.cursor == self.table.output_offset[emitted.rows] + self.emitted[emitted.rows]).all()
        self.emitted[emitted.rows] += emitted.tokens
        done = emitted.rows[self.emitted[emitted.rows] == self.owed[emitted.rows]]
        assert sorted(done.tolist()) == sorted(emitted.finished)

    @invariant()
    def sound(self):
        self.scheduler.check()
        assert (self.emitted <= self.owed.clip(0)).all()

    def teardown(self):
        if not hasattr(self, "scheduler"):
            return
        for _ in range(20_000):
            if self.scheduler.idle:
                break
            self.step()
            self.sound()
        assert self.scheduler.idle
        assert (self.emitted == self.owed)[self.accepted_rows].all()
        assert self.scheduler.pool.free == self.config.num_blocks


SchedulerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
TestSchedulerMachine = SchedulerMachine.TestCase
