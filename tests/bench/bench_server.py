"""Requests per CPU-second of the whole engine on the fixed workload: 10,000 Poisson requests, 512 in, 256 out.

The rate is 70 % of what each arm can serve with 50 requests running, so that the mean batch is near 50. Workload, tape,
simulation and columns are counted; start-up and files are not. Prints the median of three runs.
"""

from pathlib import Path
from statistics import median
from time import process_time

from sim.scenario.build import simulate
from sim.scenario.load import load_mapping

SPECULATIVE = {
    "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
    "acceptance": {"kind": "regime", "profile": "sharegpt"},
}
#: The last one is asked for K in every step, so that the server cannot leap.
ARMS = {"plain": {}, "eagle3-k3": SPECULATIVE, "eagle3-ema": SPECULATIVE | {"draft_length": {"kind": "ema"}}}
RATES = {"plain": 18.7, "eagle3-k3": 24.7, "eagle3-ema": 24.7}


def scenario(rate: float) -> object:
    return load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "engine": {"max_model_len": 32768},
            "arms": ARMS,
            "workload": {
                "arrivals": {"kind": "poisson", "request_rate": rate},
                "prompt_tokens": {"kind": "fixed", "value": 512},
                "output_tokens": {"kind": "fixed", "value": 256},
                "num_requests": 10_000,
            },
            "sweep": {"replicates": 1},
        },
        Path(),
    ).scenario


def main() -> None:
    for arm, rate in RATES.items():
        spec, times = scenario(rate), []
        for _ in range(3):
            start = process_time()
            record = simulate(spec, arm, 0, Path())
            times.append(process_time() - start)
        steps = record.steps
        batch = (steps.num_seqs * steps.duration_ns).sum() / steps.duration_ns.sum()
        busy = steps.duration_ns.sum() / (steps.start_ns[-1] + steps.duration_ns[-1])
        print(
            f"{arm:10s} {10_000 / median(times):8.0f} requests per CPU-second  ({median(times):.2f} s, "
            f"{len(steps.start_ns)} steps, mean batch {batch:.1f}, busy {busy:.2f})"
        )


if __name__ == "__main__":
    main()
