"""What lies between load-testing clients and the scheduler of an API server: HTTP, tokenising, and steps under way.

Engine metrics begin when a request is queued; clients measure from the moment they send. Between the two are the
connection, one process that tokenises prompts one after another, and the way back of the first token. Engines that
schedule beside the GPU have the next step scheduled when a request comes in, so it joins the one after.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.workload.requests import RequestTable

Floats = NDArray[np.float64]


class ClientPath(NamedTuple):
    """Seconds on the way of a request.

    Attributes:
        latency_s: there and back, beside other requests.
        request_s, prompt_token_s: of the one process that takes requests in, one after another.
    """

    latency_s: float
    request_s: float
    prompt_token_s: float

    def intake_ns(self, prompt_tokens: int) -> int:
        """Time of that process for one request."""
        return round(1e9 * (self.request_s + self.prompt_token_s * prompt_tokens))


#: `benchmark_serving.py` and an OpenAI server on one machine. The latency is fitted to every second setting of five
#: servers of Llama-70B, and the same for all; the others are assumed (a fast tokeniser takes some 5 us a token).
LOCAL = ClientPath(latency_s=0.012, request_s=0.002, prompt_token_s=5e-6)
#: Nothing lies between.
NO_PATH = ClientPath(0.0, 0.0, 0.0)


class Clients:
    """A closed loop of users as they see it; in the place of the `closed` arrivals of a scenario.

    Args:
        users: how many, each sending its next request when the last one is done.
        path: what lies between them and the scheduler.
        num_requests: of all users.

    Attributes:
        sent_ns: (N,) when each request was sent.
    """

    waits = True

    def __init__(self, users: int, path: ClientPath, num_requests: int) -> None:
        self.sent_ns = np.zeros(num_requests, np.int64)
        self._users, self._path, self._free_ns = users, path, 0

    def drive(self, env: Any, requests: RequestTable, submit: Any) -> Generator[Any, Any, None]:
        """SimPy process: start the users and wait until all are done."""
        rows = iter(range(len(requests)))

        def user() -> Generator[Any, Any, None]:
            for row in rows:
                yield env.timeout(self._on_the_way_ns(row, int(env.now), int(requests.prompt_tokens[row])))
                if (done := submit(row)) is not None:
                    yield done

        yield env.all_of([env.process(user()) for _ in range(min(self._users, len(requests)))])

    def _on_the_way_ns(self, row: int, now_ns: int, prompt_tokens: int) -> int:
        """From sending to the scheduler's queue, the first token's way back included."""
        self.sent_ns[row] = now_ns
        self._free_ns = max(self._free_ns, now_ns) + self._path.intake_ns(prompt_tokens)
        return self._free_ns - now_ns + round(1e9 * self._path.latency_s)
