"""CUDA graphs: a batch is padded up to the next captured size, which makes T(B) a step function.

Sizes as in vLLM 0.19 (docs/background/cost-model.md, "CUDA-graph padding").
"""

from bisect import bisect_left
from functools import lru_cache
from typing import NamedTuple

from sim.hardware.gpu import Gpu

#: Largest size that is captured, in tokens, and the same on data-centre Blackwell.
LARGEST_CAPTURED, LARGEST_CAPTURED_BLACKWELL = 512, 1024


class CapturedGraphs(NamedTuple):
    """Batch sizes in tokens for which a graph was captured, increasing; none at all without graphs."""

    sizes: tuple[int, ...]

    def padded(self, tokens: int) -> int:
        """Tokens that are computed for a batch of `tokens`: the next captured size, or the batch itself above them."""
        place = bisect_left(self.sizes, tokens)
        return self.sizes[place] if place < len(self.sizes) else tokens


NO_GRAPHS = CapturedGraphs(())


@lru_cache(maxsize=64)
def captured_graphs(largest: int) -> CapturedGraphs:
    """{1, 2, 4}, {8, 16, ..., 248}, {256, 272, ...} up to `largest`."""
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16))
    return CapturedGraphs(tuple(size for size in sizes if size <= largest))


def largest_captured(max_num_seqs: int, num_draft_tokens: int, max_num_batched_tokens: int, gpu: Gpu) -> int:
    """Default of `max_cudagraph_capture_size` in vLLM: min(max_num_seqs (K + 1) 2, 512 or 1024, the token budget)."""
    limit = LARGEST_CAPTURED_BLACKWELL if _is_data_centre_blackwell(gpu) else LARGEST_CAPTURED
    return min(max_num_seqs * (num_draft_tokens + 1) * 2, limit, max_num_batched_tokens)


def _is_data_centre_blackwell(gpu: Gpu) -> bool:
    """B200 and kin have NVLink; the workstation cards of the same name have not."""
    return gpu.arch.startswith("Blackwell") and gpu.link.startswith("NVLink")
