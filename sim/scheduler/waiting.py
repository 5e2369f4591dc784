"""The waiting requests: who may queue, who is admitted to the running list, and who can never run.

Rules: docs/background/server.md, "Admission" (vLLM V1 `scheduler.py`). First come, first served; the head of the queue
blocks the line.
"""

from collections import deque
from itertools import islice

import numpy as np

from sim.errors import CapacityError
from sim.kv_cache.prefix_cache import Match, NoPrefixCache
from sim.scheduler.plan import SchedulerConfig
from sim.scheduler.walker import Entry
from sim.workload.requests import RequestTable

#: A request preempted this often without a new token stops the run: the pool is too small to make progress.
MAX_FRUITLESS_PREEMPTIONS = 1000


class Waiting:
    """The queue in front of a running list.

    Attributes:
        queue: rows that wait, the head first.
        num_emitted: (N,) output tokens of every request that is not running.
        rejected: rows that can never run, in the order they were found out.
        blocked: the head was turned away for want of blocks, and nothing has been freed since.
        cached_tokens: (N,) prompt tokens found in the prefix cache at the first admission; -1 before it.
        restored_tokens: (N,) tokens found there when it came back from preemptions.
    """

    def __init__(self, config: SchedulerConfig, table: RequestTable, cache: NoPrefixCache) -> None:
        self._config, self._cache, self._pool = config, cache, cache.pool
        self.queue: deque[int] = deque()
        self.num_emitted = np.zeros(len(table), np.int64)
        self.cached_tokens = np.full(len(table), -1, np.int64)
        self.restored_tokens = np.zeros(len(table), np.int64)
        self.rejected: list[int] = []
        self._rejected_late: list[int] = []
        self.blocked = False
        self._fruitless: dict[int, tuple[int, int]] = {}
        self._prompt = table.prompt_tokens.tolist()
        self._offset = table.output_offset.tolist()
        # A request also ends when its known tokens reach max_model_len.
        self._output = table.output_limit(config.max_model_len).tolist()
        self._speculates = table.speculate.astype(np.int64).tolist()
        self._watermark_blocks = int(config.watermark * config.num_blocks)
        # Otherwise what the head needs depends on the budget left over, which changes from step to step.
        self._blocked_by_blocks_alone = config.enable_chunked_prefill and (
            config.scheduler_reserve_full_isl or config.reserve_output
        )

    def __len__(self) -> int:
        return len(self.queue)

    def resumes_next(self) -> bool:
        """Whether the head of the queue is a preempted request."""
        return bool(self.queue) and bool(self.num_emitted[self.queue[0]])

    def leave(self, row: int, cursor: int) -> None:
        """A request is done with all output positions before `cursor`; what it held is free again."""
        self.num_emitted[row] = cursor - self._offset[row]
        self.blocked = False

    def rows(self) -> set[int]:
        """Rows that wait."""
        return set(self.queue)

    def add(self, row: int) -> bool:
        """Queue a new request; False when it can never run."""
        prompt = self._prompt[row]
        if prompt >= self._config.max_model_len or not self._can_ever_run(row, prompt):
            self.rejected.append(row)
            return False
        self.queue.append(row)
        return True

    def put_back(self, row: int, cursor: int) -> None:
        """Queue a preempted request at the front; it keeps the output it has.

        Raises:
            CapacityError: it has been preempted over and over without a new token.
        """
        emitted = self.num_emitted[row] = cursor - self._offset[row]
        seen, times = self._fruitless.get(row, (emitted, 0))
        self._fruitless[row] = (emitted, times + 1 if seen == emitted else 1)
        if self._fruitless[row][1] > MAX_FRUITLESS_PREEMPTIONS:
            raise CapacityError(
                f"request {row} was preempted {MAX_FRUITLESS_PREEMPTIONS} times without a new token: "
                f"the KV pool of {self._pool.num_blocks} blocks is too small for this load"
            )
        self.queue.appendleft(row)
        self.blocked = False

    def receive(self, rows: list[int], tokens: list[int]) -> list[int]:
        """Tokens of a step that was in flight when these requests were preempted; returns the rows they complete."""
        finished = []
        for row, count in zip(rows, tokens, strict=True):
            self.num_emitted[row] += count
            if self.num_emitted[row] >= self._output[row]:
                self.queue.remove(row)
                finished.append(row)
        return finished

    def take_rejected(self) -> list[int]:
        """Rows given up since the last call: preempted requests that have outgrown the pool."""
        late, self._rejected_late = self._rejected_late, []
        self.rejected += late
        return late

    def admit(self, budget: int, busy: bool, room: int) -> list[tuple[Entry, int]]:
        """Take requests from the head of the queue until something is short.

        Args:
            budget: tokens left in this step.
            busy: another request runs, so the watermark counts (vLLM's `has_scheduled_reqs`).
            room: requests that may still join before `max_num_seqs` run.

        Returns:
            The requests, holding the blocks of their first chunk, and the tokens granted to each.
        """
        admitted: list[tuple[Entry, int]] = []
        while self.queue and budget > 0 and len(admitted) < room:
            row = self.queue[0]
            known = self._known(row)
            if not self._can_ever_run(row, known):
                self._rejected_late.append(self.queue.popleft())
                continue
            match = self._cache.match(row, known)
            tokens = self._admission_tokens(row, known, match, budget, busy or bool(admitted))
            if tokens == 0:
                self.blocked = self._blocked_by_blocks_alone and not self._cache.may_hit(row)
                break
            self.queue.popleft()
            admitted.append((self._enter(row, known, match, tokens), tokens))
            budget -= tokens
        return admitted

    def admissible_tokens(self, budget: int, busy: bool, room: int) -> int:
        """Tokens that `admit` would hand out, each request's KV blocks looked at by themselves."""
        left = budget
        for row in islice(self.queue, room):
            known = self._known(row)
            tokens = self._admission_tokens(row, known, self._cache.match(row, known), left, busy) if left else 0
            if not tokens:
                break
            left -= tokens
        return budget - left

    def _known(self, row: int) -> int:
        return int(self._prompt[row] + self.num_emitted[row])

    def _can_ever_run(self, row: int, known: int) -> bool:
        """Whether an empty engine could prefill the `known` tokens of a request."""
        config = self._config
        chunk = min(known, config.long_prefill_token_threshold or known)
        in_budget = config.enable_chunked_prefill or chunk <= config.max_num_scheduled_tokens
        return in_budget and self._pool.blocks_for(self._reserved(row, known)) <= config.num_blocks

    def _reserved(self, row: int, known: int) -> int:
        """KV slots to find for a request: of its known tokens, or of the last step that it can run."""
        config = self._config
        if not config.reserve_output:
            return known
        last: int = self._prompt[row] + self._output[row] - 1 + config.draft_slots + config.lookahead_tokens
        return max(known, min(last, config.max_model_len))

    def _admission_tokens(self, row: int, known: int, match: Match, budget: int, busy: bool) -> int:
        """Tokens the head of the queue would get now; 0 when it has to wait."""
        config, pool = self._config, self._pool
        hit = len(match.ids) * pool.block_size
        tokens = min(known - hit, config.long_prefill_token_threshold or known)
        if tokens > budget and not config.enable_chunked_prefill:
            return 0
        tokens = min(tokens, budget)
        whole = config.scheduler_reserve_full_isl or config.reserve_output
        needed = pool.blocks_for(self._reserved(row, known) if whole else hit + tokens)
        needed -= len(match.ids) - match.num_idle
        reserve = self._watermark_blocks if busy else 0
        return tokens if needed + reserve <= pool.free else 0

    def _enter(self, row: int, known: int, match: Match, tokens: int) -> Entry:
        hit = len(match.ids) * self._pool.block_size
        taken = self._reserved(row, known) if self._config.reserve_output else hit + tokens
        blocks = self._pool.blocks_for(taken)
        self._cache.enter(row, match)
        self._pool.take(blocks - len(match.ids))
        self._cache.fill(row, hit + tokens)
        self._count_hit(row, hit)
        offset = self._offset[row]
        cursor, end = offset + known - self._prompt[row], offset + self._output[row]
        return Entry(row, known, known - hit, cursor, end, blocks, self._speculates[row], hit + tokens)

    def _count_hit(self, row: int, hit: int) -> None:
        if self.cached_tokens[row] < 0:
            self.cached_tokens[row] = hit
        else:
            self.restored_tokens[row] += hit
