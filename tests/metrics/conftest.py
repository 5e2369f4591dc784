"""A toy server that leaves a valid record behind: enough for metrics, with nothing of the real one."""

from collections.abc import Callable

import numpy as np
import pytest

from sim.metrics.record import RequestRecord, RunRecord, Status, StepRecord

ToyRun = Callable[..., RunRecord]
STEP_FIELDS = (
    "start_ns", "duration_ns", "draft_ns", "target_ns", "host_ns", "num_seqs", "num_emitting", "prefill_tokens",
    "num_tokens", "draft_tokens", "accepted_tokens", "emitted_tokens", "num_draft_tokens", "running", "waiting",
    "kv_blocks_used", "preemptions",
)  # fmt: skip


class _Toy:
    """Steps of 10 ms + 1 ms per sequence; a request's first step is its prefill, later ones verify `k` drafts."""

    def __init__(self, num: int, concurrency: int | None, k: int, rate: float, slots: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.k, self.slots, self.num, self.concurrency = rng, k, slots, num, concurrency
        self.prompt = rng.integers(1, 50, num)
        self.output = rng.integers(1, 30, num)
        self.offset = np.concatenate(([0], np.cumsum(self.output)[:-1]))
        self.arrival = np.full(num, -1) if concurrency else np.cumsum(rng.exponential(1e9 / rate, num)).astype(int)
        self.first_scheduled, self.first_token, self.finish = (np.full(num, -1) for _ in range(3))
        total = int(self.output.sum())
        self.emission = np.full(total, -1, np.int32)
        self.drafted, self.accepted = np.zeros(total, np.uint8), np.zeros(total, np.uint8)
        self.done_tokens = np.zeros(num, int)
        self.rows: list[dict[str, int]] = []
        self.ops: list[list[float]] = []

    def run(self) -> RunRecord:
        now, running, waiting, fresh = 0, [], [], 0
        if self.concurrency:
            fresh = min(self.concurrency, self.num)
            self.arrival[:fresh] = 0
            waiting = list(range(fresh))
        while fresh < self.num or waiting or running:
            if not self.concurrency:
                if not waiting and not running and fresh < self.num:
                    now = max(now, int(self.arrival[fresh]))
                while fresh < self.num and self.arrival[fresh] <= now:
                    waiting.append(fresh)
                    fresh += 1
            while waiting and len(running) < self.slots:
                row = waiting.pop(0)
                self.first_scheduled[row] = now
                running.append(row)
            now, finished = self._step(now, running, len(waiting))
            running = [row for row in running if row not in finished]
            if self.concurrency:
                for _ in finished:
                    if fresh < self.num:
                        self.arrival[fresh] = now
                        waiting.append(fresh)
                        fresh += 1
        return self._record()

    def _step(self, now: int, running: list[int], waiting: int) -> tuple[int, list[int]]:
        n, finished = len(running), []
        counts = dict.fromkeys(STEP_FIELDS, 0)
        end = now + 10_000_000 + 1_000_000 * n
        for row in running:
            at = self.offset[row] + self.done_tokens[row]
            if self.done_tokens[row] == 0:
                self.first_token[row], drafted, accepted = end, 0, 0
                counts["prefill_tokens"] += int(self.prompt[row])
                counts["num_tokens"] += int(self.prompt[row])
            else:
                drafted = int(self.rng.integers(0, self.k + 1))
                accepted = int(self.rng.integers(0, drafted + 1))
                counts["num_tokens"] += 1 + drafted
            left = int(self.output[row] - self.done_tokens[row])
            self.emission[at], self.drafted[at], self.accepted[at] = len(self.rows), drafted, accepted
            self.done_tokens[row] += min(accepted + 1, left)
            counts["draft_tokens"] += drafted
            counts["accepted_tokens"] += accepted
            counts["emitted_tokens"] += min(accepted + 1, left)
            if accepted + 1 >= left:
                self.finish[row] = end
                finished.append(row)
        counts |= {"start_ns": now, "duration_ns": end - now, "draft_ns": 2_000_000, "host_ns": 1_000_000}
        counts |= {"target_ns": end - now - 3_000_000, "num_seqs": n, "num_emitting": n, "running": n}
        counts |= {"waiting": waiting, "kv_blocks_used": 3 * n, "num_draft_tokens": self.k}
        self.rows.append(counts)
        self.ops.append([(end - now - 3_000_000) / 1e9, 0.0, 0.0, 0.0, 0.0])
        return end, finished

    def _record(self) -> RunRecord:
        columns = {name: np.array([row[name] for row in self.rows], np.int64) for name in STEP_FIELDS}
        columns["replica"] = np.zeros(len(self.rows), np.int64)
        zeros = np.zeros(self.num, np.int64)
        requests = RequestRecord(
            self.prompt, self.output, self.output, self.offset, zeros, self.arrival, self.first_scheduled,
            self.first_token, self.finish, np.full(self.num, Status.FINISHED, np.int8), *(5 * [zeros]),
        )  # fmt: skip
        bound = np.arange(len(self.rows)) % 2 == 0
        steps = StepRecord(**columns, op_seconds=np.array(self.ops), memory_bound=bound)
        return RunRecord(requests, steps, self.emission, self.drafted, self.accepted, 100, 16)


@pytest.fixture
def toy_run() -> ToyRun:
    """`toy_run(num, concurrency | None, k, rate, slots, seed) -> RunRecord`."""

    def make(
        num: int = 60, concurrency: int | None = None, k: int = 3, rate: float = 5.0, slots: int = 8, seed: int = 1
    ) -> RunRecord:
        return _Toy(num, concurrency, k, rate, slots, seed).run()

    return make
