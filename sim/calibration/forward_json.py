"""The JSON that `vllm bench forward` writes: exact batches and their median step time.

A list of `{case, requests: [{query_len, kv_len, num_draft_tokens}], median_us, ranks}`; a case such as
`verify=16*4@4096:3` is 16 requests with 4 new tokens each over a KV length of 4096, 3 of the 4 being draft tokens.
"""

import json
import math
from typing import Any, NamedTuple

from sim.calibration.problems import Problems
from sim.cost.base import NO_ATTENTION, AttentionLoad, ForwardPass


class Step(NamedTuple):
    """One measured step.

    Attributes:
        file, row: where it was read; the number of the case in the list, from 1.
        case: its name.
        forward: what the step computes.
        time_us: median time.
        ranks: GPUs that the step ran on.
        group: points that are left out together: the kind of the case and its context.
    """

    file: str
    row: int
    case: str
    forward: ForwardPass
    time_us: float
    ranks: int
    group: str


def parse_forward(file: str, text: str, problems: Problems) -> list[Step]:
    """The steps of one file; problems are noted with the number of the case, and such cases left out."""
    try:
        document = json.loads(text)
    except ValueError as error:
        problems.add(file, "", f"is not JSON: {error}")
        return []
    cases = document.get("results") if isinstance(document, dict) else document
    if not isinstance(cases, list) or not cases:
        problems.add(file, "", "must be a list of {case, requests, median_us}, as `vllm bench forward` writes it")
        return []
    steps = [_step(file, row, case, problems) for row, case in enumerate(cases, 1)]
    return [step for step in steps if step is not None]


def _step(file: str, row: int, case: Any, problems: Problems) -> Step | None:
    if not isinstance(case, dict) or not {"requests", "median_us"} <= case.keys():
        problems.add(file, "", "a case needs `requests` and `median_us`", [row])
        return None
    time_us, requests = case["median_us"], case["requests"]
    good_time = _is_number(time_us) and math.isfinite(time_us) and time_us > 0
    if not good_time:
        problems.add(file, "median_us", "not a finite time above 0", [row])
    loads = _requests(file, row, requests, problems)
    ranks = case.get("ranks", 1)
    ranks = len(ranks) if isinstance(ranks, list) else ranks
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        problems.add(file, "ranks", "not a whole number of at least 1, nor a list of ranks", [row])
        return None
    if not good_time or loads is None:
        return None
    return _make_step((file, row, str(case.get("case", f"case {row}"))), loads, float(time_us), ranks)


def _requests(file: str, row: int, requests: Any, problems: Problems) -> list[tuple[int, int, int]] | None:
    """(new tokens, KV length with the new tokens, drafts) of each request."""
    if not isinstance(requests, list) or not requests:
        problems.add(file, "requests", "must be a list of {query_len, kv_len, num_draft_tokens}", [row])
        return None
    found = [_sizes(request) for request in requests]
    good = [sizes for sizes in found if sizes is not None]
    if len(good) < len(found):
        reason = (
            "need whole numbers, 0 < query_len <= kv_len (which counts the new tokens), num_draft_tokens < query_len"
        )
        problems.add(file, "requests", reason, [row])
        return None
    return good


def _sizes(request: Any) -> tuple[int, int, int] | None:
    if not isinstance(request, dict):
        return None
    new, kv, drafts = (request.get(key, 0) for key in ("query_len", "kv_len", "num_draft_tokens"))
    counts = all(isinstance(n, int) and not isinstance(n, bool) for n in (new, kv, drafts))
    return (new, kv, drafts) if counts and 0 <= drafts < new <= kv else None


def _make_step(origin: tuple[str, int, str], loads: list[tuple[int, int, int]], time_us: float, ranks: int) -> Step:
    """Requests with drafts sample 1 + drafts rows, all others one row."""
    drafts = sum(d for _, _, d in loads)
    decode, extend = (_load([r for r in loads if (r[0] == 1) is single]) for single in (True, False))
    tokens = decode.num_tokens + extend.num_tokens
    forward = ForwardPass(len(loads), tokens, len(loads) + drafts, drafts, decode, extend)
    contexts = sorted({kv for _, kv, _ in loads})
    group = f"{origin[2].split('=')[0]}@{contexts[0]}-{contexts[-1]}"
    return Step(*origin, forward, time_us, ranks, group)


def _load(requests: list[tuple[int, int, int]]) -> AttentionLoad:
    if not requests:
        return NO_ATTENTION
    pairs = sum(new * (kv - new) + new * (new + 1) // 2 for new, kv, _ in requests)
    return AttentionLoad(len(requests), sum(r[0] for r in requests), sum(r[1] for r in requests), pairs)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
