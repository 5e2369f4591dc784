"""Holding prompts back until there are enough for a full pass: TensorRT-LLM's batch waiting.

`PyExecutor._waiting_requests` (`_torch/pyexecutor/py_executor.py`): prompts that could be admitted wait while requests
decode, until the step would hold `batch_wait_max_tokens_ratio` of the token budget, or for `batch_wait_timeout_iters`
steps. Both are 0 by default. TTFT pays up to that many steps; fewer steps are slowed down by prefill.
"""

from sim.scheduler.plan import SchedulerConfig


class BatchWait:
    """Counts the steps for which prompts have been held back.

    Attributes:
        enabled: whether anything is ever held back.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self.enabled = config.waits_for_batch
        self._most_steps = config.batch_wait_timeout_iters
        self._enough_tokens = config.batch_wait_max_tokens_ratio * config.max_num_scheduled_tokens
        self._steps = 0

    def holds_back(self, running_tokens: int, waiting_tokens: int) -> bool:
        """Whether this step leaves the waiting prompts where they are.

        Args:
            running_tokens: of running requests in this step; nobody waits for an idle engine.
            waiting_tokens: of the prompts that could be admitted in it.
        """
        if not running_tokens or not waiting_tokens:
            return False
        if self._steps >= self._most_steps or running_tokens + waiting_tokens >= self._enough_tokens:
            self._steps = 0
            return False
        self._steps += 1
        return True
