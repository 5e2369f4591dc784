"""Up to which batch an arm pays, in words."""

from collections.abc import Iterator
from typing import Any

from sim.experiment.explanation import BreakEven, Explanation, Ranges
from sim.report.plain_text import band, count, labelled

_TURNS = {"gain_to_loss": "pays up to", "loss_to_gain": "starts paying at"}


def verdict_lines(explanation: Explanation) -> Iterator[str]:
    """Two lines per arm and context: the verdict, and the speed-up at both ends."""
    arms = [arm for arm in explanation.arms if arm.break_even]
    width = min(34, max((len(arm.name) for arm in arms), default=0) + 4)
    for arm in arms:
        label = f"  {arm.name}"
        for found in arm.break_even:
            context = f"context {count(found.context_tokens)}: " if len(arm.break_even) > 1 else ""
            yield from labelled(label, context + _verdict(found, explanation.cost.relative_error), width)
            if found.batch_1 is not None:
                yield from labelled("", _gains(found), width)
            label = ""
    if any(not found.reason for arm in arms for found in arm.break_even):
        yield from labelled("", _legend(explanation), 2)


def _legend(explanation: Explanation) -> str:
    error = explanation.cost.relative_error
    text = f"speed-up over {explanation.baseline}"
    return f"({text}; band: speculative steps {100 * error:.0f} % longer or shorter)" if error else f"({text})"


def _verdict(found: BreakEven, error: float) -> str:
    if found.reason:
        return f"no closed form: {found.reason}"
    document: dict[str, Any] = dict(found.document)
    last, full = document["max_batch"], document["capacity_reached_first"]
    end = f"{count(last)}, {'where the KV pool is full' if full else 'the largest that fits'}"
    if document["crossings"]:
        return ", ".join(_turn(crossing, last) for crossing in document["crossings"])
    if document["status"] == "always":
        text, other, change = f"pays at every batch up to {end}", found.pays_if_slower, "longer"
    else:
        text, other, change = f"pays at no batch up to {end}", found.pays_if_faster, "shorter"
    changed = other != found.pays
    return text + (f"; with steps {100 * error:.0f} % {change} {_ranges(other)}" if changed else "")


def _ranges(ranges: Ranges) -> str:
    """Where it pays, in whole batches."""
    texts = [f"{count(low)}-{count(high)}" for low, high in ranges]
    return f"at batch {' and '.join(texts)} only" if texts else "at no batch"


def _turn(crossing: dict[str, Any], last: int) -> str:
    low, high = crossing["model_band_low"], crossing["model_band_high"]
    lower, upper = "below 1" if low is None else count(low), f"over {count(last)}" if high is None else count(high)
    between = f"{lower} to {upper}" if low is None or high is None else f"{lower}-{upper}"
    return f"{_TURNS[crossing['direction']]} batch {count(crossing['value'])} (band {between})"


def _gains(found: BreakEven) -> str:
    ends = {1: found.batch_1, int(str(found.document["max_batch"])): found.largest_batch}
    return "speed-up " + ", ".join(f"{band(*at)} at batch {count(batch)}" for batch, at in ends.items() if at)
