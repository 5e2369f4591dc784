"""Acceptance as servers report it: files read, checked, and reduced to what they really say.

Three forms, told apart by content:

- per-request stats of vLLM (`--per-request-spec-decode-stats summary|detailed`, docs `acceptance_metrics.md`): any JSON
  or JSON lines with objects that hold `acceptance_histogram`, dense or sparse, with or without `per_step_accepted` and
  `per_step_drafted`; responses may be saved whole.
- the result of `vllm bench serve` (`vllm/benchmarks/serve.py`): `spec_decode_*` keys.
- a server log with lines `SpecDecoding metrics: ...` (`vllm/v1/spec_decode/metrics.py`).

All count drafts of *drafted* steps; the mean length includes the bonus token.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sim.acceptance.base import MAX_DRAFT_TOKENS, Floats
from sim.csv_table import Problems
from sim.json_file import json_documents
from sim.text_file import read_text, refuse

_HISTOGRAM, _BENCH = "acceptance_histogram", "spec_decode_"
_RATES, _LENGTH = f"{_BENCH}per_position_acceptance_rates", f"{_BENCH}acceptance_length"
_LOG = "SpecDecoding metrics:"
_MEAN = re.compile(r"Mean acceptance length: ([0-9.]+)")
_COUNTS = re.compile(r"Accepted: (\d+) tokens, Drafted: (\d+) tokens")
_POSITIONS = re.compile(r"Per-position acceptance rate: ([0-9., ]+?)(?:, Avg|$)")
#: Steps whose drafts were cut (end of an output) that a histogram without per-step arrays may hide.
_CUT_SHARE = 0.01
#: Rounding of published figures: two or three decimals.
_ROUNDING = 0.02


@dataclass(frozen=True, eq=False)
class ServerReport:
    """What a file says, at the K it was measured with.

    Attributes:
        form: `per-request histograms`, `per-step traces`, `per-position rates` or `mean length`.
        conditional: (K,) P(draft d accepted | those before were, and d was drafted); None for a mean length only.
        tokens_per_step: mean acceptance length per drafted step, bonus token included.
        num_draft_tokens: K.
        steps: drafted steps behind the figures; 0 where the file does not say.
        request_means, request_variances, request_steps: (R,) drafts accepted per step by request; empty without them.
    """

    form: str
    conditional: Floats | None
    tokens_per_step: float
    num_draft_tokens: int
    steps: int
    request_means: Floats
    request_variances: Floats
    request_steps: Floats


@lru_cache(maxsize=8)
def read_server_report(path: Path) -> ServerReport:
    """Read one file of any of the three forms.

    Raises:
        ScenarioError: unreadable, of no known form, or figures that contradict one another; all of it at once.
    """
    text, _ = read_text(path)
    problems = Problems(path)
    if _LOG in text or not text.lstrip().startswith(("{", "[")):
        report = _log(text, problems)
    else:
        documents = json_documents(text, path)
        stats = [(line, found) for line, document in documents for found in _having(document, _HISTOGRAM)]
        bench = [(line, found) for line, document in documents for found in _having(document, _LENGTH)]
        report = _requests(stats, problems) if stats else _bench(bench, problems) if bench else None
    problems.raise_if_any()
    if report is None:
        raise refuse(
            path, f"no {_HISTOGRAM}, no {_LENGTH} and no line with '{_LOG}'; see docs/background/acceptance.md"
        )
    return report


def _having(document: Any, key: str) -> Iterator[Mapping[str, Any]]:
    """Every object in a document with this key, in order."""
    if isinstance(document, dict):
        if key in document:
            yield document
        for value in document.values():
            yield from _having(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from _having(value, key)


def _requests(found: list[tuple[int, Mapping[str, Any]]], problems: Problems) -> ServerReport | None:
    """Pool the requests; depth by depth over the steps that drafted so deep."""
    largest = max((k for _, stats in found if isinstance(k := stats.get("num_spec_tokens"), int)), default=0)
    if not 1 <= largest <= MAX_DRAFT_TOKENS:
        problems.add(found[0][0], "num_spec_tokens", f"missing or outside 1..{MAX_DRAFT_TOKENS}")
        return None
    requests = [_request(line, stats, largest, problems) for line, stats in found]
    usable = [request for request in requests if request is not None and request[0].sum() > 0]
    if not usable:
        problems.add(found[0][0], _HISTOGRAM, "no request has a step with drafts")
        return None
    counts = np.array([request[0] for request in usable])
    reached, kept = (np.sum([request[index] for request in usable], axis=0) for index in (1, 2))
    levels = np.arange(largest + 1.0)
    steps = counts.sum(axis=1)
    means = counts @ levels / steps
    variances = np.maximum(counts @ levels**2 / steps - means**2, 0.0)
    conditional = np.divide(kept, reached, out=np.zeros(largest), where=reached > 0)
    detailed = all("per_step_drafted" in stats for _, stats in found)
    form = "per-step traces" if detailed else "per-request histograms"
    mean = 1.0 + float(counts.sum(axis=0) @ levels / steps.sum())
    return ServerReport(form, conditional, mean, largest, int(steps.sum()), means, variances, steps)


def _request(
    line: int, stats: Mapping[str, Any], largest: int, problems: Problems
) -> tuple[Floats, Floats, Floats] | None:
    """Counts (K+1,) by accepted drafts; steps (K,) that reached and drafted each depth; those that accepted it."""
    accepted, drafted = stats.get("per_step_accepted"), stats.get("per_step_drafted")
    if accepted is not None or drafted is not None:
        return _traced(line, accepted, drafted, largest, problems)
    counts = _histogram(line, stats[_HISTOGRAM], largest, problems)
    if counts is None:
        return None
    steps, made = counts.sum(), stats.get("num_draft_tokens")
    if not isinstance(made, int) or abs(made - largest * steps) > _CUT_SHARE * largest * steps:
        problems.add(line, "num_draft_tokens", f"{made} is not {largest} drafts in each of {steps:g} steps: K varied, "
                     "so a histogram mixes 'not drafted' with 'rejected'; record with `detailed`")  # fmt: skip
        return None
    at_least = np.cumsum(counts[::-1])[::-1]
    return counts, at_least[:-1], at_least[1:]


def _histogram(line: int, found: Any, largest: int, problems: Problems) -> Floats | None:
    pairs = (
        list(found.items()) if isinstance(found, dict) else list(enumerate(found)) if isinstance(found, list) else []
    )
    counts = np.zeros(largest + 1)
    for level, count in pairs:
        whole = isinstance(level, int) or str(level).isdecimal()
        if not whole or not isinstance(count, int) or count < 0 or int(level) > largest:
            problems.add(line, _HISTOGRAM, f"{level}: {count} is no count of steps that accepted 0..{largest} drafts")
            return None
        counts[int(level)] = count
    if not pairs and found not in ({}, []):
        problems.add(line, _HISTOGRAM, "neither a map nor a list of counts")
        return None
    return counts


def _traced(
    line: int, accepted: Any, drafted: Any, largest: int, problems: Problems
) -> tuple[Floats, Floats, Floats] | None:
    lists = isinstance(accepted, list) and isinstance(drafted, list) and len(accepted) == len(drafted)
    steps = list(zip(accepted, drafted, strict=True)) if lists else []
    if not lists or not all(isinstance(a, int) and isinstance(d, int) and 0 <= a <= d <= largest for a, d in steps):
        problems.add(line, "per_step_accepted", f"needs per_step_drafted of the same length, 0 <= accepted <= drafted <= {largest}")  # fmt: skip  # noqa: E501
        return None
    taken, made = np.array(steps, dtype=np.int64).reshape(-1, 2).T
    taken, made = taken[made > 0], made[made > 0]
    depth = np.arange(1, largest + 1)[:, None]
    reached = ((taken >= depth - 1) & (made >= depth)).sum(axis=1)
    return np.bincount(taken, minlength=largest + 1).astype(float), reached.astype(float), (taken >= depth).sum(1) * 1.0


def _bench(found: list[tuple[int, Mapping[str, Any]]], problems: Problems) -> ServerReport | None:
    line, bench = found[0]
    if len(found) > 1:
        problems.add(found[1][0], _LENGTH, f"{len(found)} benchmark results in one file; state one")
        return None
    names = f"{_BENCH}num_drafts", f"{_BENCH}draft_tokens", f"{_BENCH}accepted_tokens"
    drafts, made, accepted = (bench.get(name) for name in names)
    for name in names:
        if not isinstance(bench.get(name), int) or bench[name] < 0:
            problems.add(line, name, f"{bench.get(name)!r} is no count")
            return None
    rates = bench.get(_RATES)
    if rates:
        return _positions(line, rates, float(bench[_LENGTH]), int(drafts or 0), problems)
    k = made / drafts if drafts else 0.0
    if not drafts or abs(k - round(k)) > _CUT_SHARE * k or round(k) < 1:
        problems.add(line, names[1], f"{made} in {drafts} drafts gives no whole K, and there are no {_RATES}")
        return None
    return ServerReport("mean length", None, 1.0 + accepted / drafts, round(k), drafts, *([np.zeros(0)] * 3))


def _positions(line: int, rates: Any, length: float, steps: int, problems: Problems) -> ServerReport | None:
    """Unconditional rates, checked against the mean length beside them."""
    marginal = [1.0, *rates] if isinstance(rates, list) else []
    numbers = all(isinstance(rate, int | float) and 0 <= rate <= 1 for rate in marginal)
    if not marginal or not numbers or len(marginal) > MAX_DRAFT_TOKENS + 1:
        problems.add(line, _RATES, f"{rates!r}: must be a list of rates in [0, 1]")
        return None
    if any(after > before for before, after in itertools.pairwise(marginal)):
        problems.add(line, _RATES, "increase: unconditional rates cannot")
        return None
    if abs(sum(marginal) - length) > _ROUNDING + 0.001 * len(marginal):
        problems.add(line, _LENGTH, f"{length:g} is not 1 + the sum of the rates by position, {sum(marginal):g}")
        return None
    before = np.array(marginal[:-1])
    conditional = np.divide(marginal[1:], before, out=np.zeros(len(before)), where=before > 0)
    empty = np.zeros(0)
    return ServerReport("per-position rates", conditional, sum(marginal), len(before), steps, empty, empty, empty)


def _log(text: str, problems: Problems) -> ServerReport | None:
    """All intervals of a server log, weighted by their drafts; those without drafts have nothing to say."""
    weighted: list[tuple[float, list[float]]] = []
    for at, line in enumerate(text.splitlines(), start=1):
        if _LOG not in line:
            continue
        mean, counts, rates = _MEAN.search(line), _COUNTS.search(line), _POSITIONS.search(line)
        if mean is None or counts is None or rates is None:
            problems.add(at, "", "a line of metrics without mean length, accepted, drafted and per-position rates")
            continue
        marginal = [float(rate) for rate in rates[1].split(",") if rate.strip()]
        drafted = int(counts[2])
        if drafted:
            weighted.append((drafted / len(marginal), marginal))
            _positions(at, marginal, float(mean[1]), 0, problems)
    if not weighted:
        return None
    if len({len(marginal) for _, marginal in weighted}) > 1:
        problems.add(1, "", "lines of several K in one log; cut out one server run")
        return None
    weights = np.array([weight for weight, _ in weighted])
    pooled = weights @ np.array([marginal for _, marginal in weighted]) / weights.sum()
    return _positions(1, [float(rate) for rate in pooled], 1.0 + float(pooled.sum()), round(weights.sum()), problems)
