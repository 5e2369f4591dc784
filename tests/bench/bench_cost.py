"""Microseconds to price one engine step, amortised: `python tests/bench/bench_cost.py`. No assertions on time."""

import time
from pathlib import Path

from sim.cost.passes import join_passes, plain_pass, prefill_pass, verify_pass
from sim.cost.roofline import Roofline
from sim.deployment import Deployment, MemoryBudget
from sim.hardware.catalogue import find_gpu
from sim.models.catalogue import find_model

NUM_STEPS = 200_000


def microseconds_per_price(model_name: str, gpu_name: str) -> dict[str, float]:
    """Mean time of `price` over a stream of decode, verify and mixed passes whose sizes change every step."""
    model = find_model(model_name, Path())
    budget = MemoryBudget(0, 0, 0, 0, 0, 0, 0, 0)
    deployment = Deployment(model, None, find_gpu(gpu_name), 1, 1, model.weight_dtype, "bf16", 16, 1000, budget)
    shapes = [(1 + i * 7 % 256, 128 + i * 37 % 6000) for i in range(2000)]
    streams = {
        "plain": [plain_pass(b, c) for b, c in shapes],
        "verify": [verify_pass(b, c, 3) for b, c in shapes],
        "mixed": [join_passes(verify_pass(b, c, 3), prefill_pass(1 + c % 2048)) for b, c in shapes],
    }
    return {name: _time(Roofline().bind(deployment).target.price, passes) for name, passes in streams.items()}


def _time(price, passes) -> float:
    start = time.perf_counter()
    for _ in range(NUM_STEPS // len(passes)):
        for forward in passes:
            price(forward)
    return (time.perf_counter() - start) / NUM_STEPS * 1e6


if __name__ == "__main__":
    for model_name, gpu_name in (
        ("llama-3.1-8b", "h100-sxm"),
        ("llama-3.1-8b", "rtx-4090"),
        ("gemma-3-27b", "h100-sxm"),
    ):
        figures = microseconds_per_price(model_name, gpu_name)
        print(f"{model_name} on {gpu_name}: " + ", ".join(f"{k} {v:.2f} us" for k, v in figures.items()))
