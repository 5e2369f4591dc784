"""Two recorded runs of a real server (vLLM 0.19, plain decode, overloaded) replayed with their own limits and blocks.

Nothing is tuned to them: kernel parameters come from the GPU profiles, the host time is the default. `make reality`
prints the table. The tolerance is the one the design of the project set before the replay was written: 10 % of every
mean, since the host time per step is not known.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from sim.metrics.record import RunRecord, Status
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping

TOLERANCE = 0.10
RUNS = {"rtx4090": "rtx-4090", "rtxpro6000": "rtx-pro-6000-se"}
MEANS = ("ttft_ms", "tpot_ms", "e2el_ms")


def recorded(folder: Path, run: str) -> dict[str, np.ndarray]:
    table = np.genfromtxt(folder / f"{run}_llama-3.1-8b_requests.csv", delimiter=",", names=True)
    order = np.argsort(table["queued_s"], kind="stable")
    return {name: table[name][order] for name in table.dtype.names}


def means(arrival: np.ndarray, first: np.ndarray, last: np.ndarray, output: np.ndarray) -> dict[str, float]:
    """vLLM's definitions, in ms, from times in seconds."""
    return {
        "ttft_ms": 1e3 * float((first - arrival).mean()),
        "tpot_ms": 1e3 * float(((last - first) / (output - 1)).mean()),
        "e2el_ms": 1e3 * float((last - arrival).mean()),
    }


def replay(folder: Path, run: str, tmp_path: Path) -> tuple[RunRecord, dict[str, np.ndarray]]:
    measured = recorded(folder, run)
    engine = json.loads((folder / f"{run}_llama-3.1-8b_engine.json").read_text())
    trace = tmp_path / f"{run}.csv"
    lines = [
        f"{arrival:.6f},{int(prompt)},{int(output)}"
        for arrival, prompt, output in zip(
            measured["queued_s"], measured["input_tokens"], measured["output_tokens"], strict=True
        )
    ]
    trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *lines]) + "\n")
    blocks = engine["kv_cache"]["num_gpu_blocks"] if engine["kv_cache"] else None
    scenario = load_mapping(
        {
            "hardware": RUNS[run],
            "model": "llama-3.1-8b",
            "engine": {
                "max_num_seqs": engine["max_num_seqs"],
                "max_num_batched_tokens": engine["max_num_batched_tokens"],
                "max_model_len": engine["max_model_len"],
                "num_gpu_blocks_override": blocks,
            },
            "arms": {"plain": {}},
            "workload": {"trace": str(trace), "arrivals": {"kind": "trace"}},
        },
        tmp_path,
    ).scenario
    return simulate(scenario, "plain", 0, tmp_path), measured


@pytest.mark.parametrize("run", RUNS)
def test_means_of_a_recorded_server(run: str, shared_data: Path, tmp_path: Path) -> None:
    record, measured = replay(shared_data / "recorded_vllm", run, tmp_path)
    requests = record.requests
    assert (requests.status == Status.FINISHED).all()
    seconds = [column * 1e-9 for column in (requests.arrival_ns, requests.first_token_ns, requests.finish_ns)]
    ours = means(*seconds, requests.output_tokens)
    theirs = means(measured["queued_s"], measured["first_token_s"], measured["last_token_s"], measured["output_tokens"])
    errors = {name: ours[name] / theirs[name] - 1 for name in MEANS}
    for name in MEANS:
        print(f"{run:11s} {name:8s} measured {theirs[name]:10.2f}  simulated {ours[name]:10.2f}  {errors[name]:+.1%}")
    print(f"{run:11s} preemptions {int(requests.num_preemptions.sum())}")
    assert max(abs(error) for error in errors.values()) <= TOLERANCE, errors
