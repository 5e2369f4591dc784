"""Joules per token from the power limit: a crude model, given with its band.

A GPU draws a share of its power limit (TDP) that depends on what it does: idle, decoding (memory-bound) or prefilling
(compute-bound). Only the GPUs count: no hosts, no cooling. The shares and their spread, all of datacenter GPUs:

- decode: 300 W at batch 1 and 600 W at batch 128 on an H100 of 700 W (ML.ENERGY Benchmark v3.0, as quoted by the power
  model of vLLM Semantic Router's fleet-sim); 137 to 300 W on an H200 of 700 W (arXiv 2605.11999);
- prefill: at or near the power limit (POLCA, arXiv 2308.12908: prompts draw peaks, tokens plateaus below them);
- idle, model loaded: 70 to 140 W of 700 W (a choice: the range that `nvidia-smi` shows; no source measures it for all).
"""

from dataclasses import dataclass
from typing import NamedTuple


class Share(NamedTuple):
    """A share of the power limit, and its band."""

    low: float
    middle: float
    high: float


IDLE, DECODE, PREFILL = Share(0.10, 0.14, 0.20), Share(0.20, 0.60, 0.86), Share(0.60, 0.90, 1.00)


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules per output token with the band of the shares; `watts` of all GPUs."""

    joules_per_token: float
    low: float
    high: float
    watts: float


def energy(tdp_w: float, num_gpus: int, busy: float, prefill: float, tokens_per_s: float) -> Energy:
    """Energy per output token.

    Args:
        tdp_w: power limit of a GPU.
        num_gpus: how many.
        busy: share of the time with a step running.
        prefill: share of the step time that prefills.
        tokens_per_s: output tokens per second of all GPUs, > 0.
    """
    shares = [
        busy * (prefill * full + (1 - prefill) * part) + (1 - busy) * idle
        for full, part, idle in zip(PREFILL, DECODE, IDLE, strict=True)
    ]
    low, middle, high = (share * tdp_w * num_gpus for share in shares)
    return Energy(middle / tokens_per_s, low / tokens_per_s, high / tokens_per_s, middle)
