"""Clients of whole servers: what lies between them and the scheduler, and the recipes of the servers."""

from pathlib import Path

import numpy as np
import pytest

from sim.hardware.catalogue import find_gpu
from sim.metrics.latency import latencies
from sim.models.catalogue import find_model
from sim.scenario.build import set_up, simulate
from sim.scenario.load import load_mapping
from sim.scenario.schema import Scenario
from sim.validation.harness.clients import NO_PATH, ClientPath
from sim.validation.harness.recipes import Served, cost_arguments, engine_arguments
from sim.validation.harness.waves import run_waves, step_ahead_ms, wave_workload
from sim.validation.host_fit import Setting

KERNELS = {"kind": "roofline", "engine": "none"}


def scenario(concurrency: int, cost_model: dict[str, object], **engine: object) -> Scenario:
    return load_mapping(
        {
            "hardware": "h100-sxm", "model": "llama-3.1-8b", "arms": {"plain": {}}, "cost_model": cost_model,
            "engine": engine, "workload": wave_workload(concurrency, 1024, 1024),
        }
    ).scenario  # fmt: skip


def test_without_anything_between_clients_measure_what_the_engine_does():
    """Oracle: the closed loop of every simulation."""
    load = scenario(8, KERNELS)
    record = simulate(load, "plain", 0, Path())
    expected, found = latencies(record), run_waves(load, "plain", NO_PATH)
    assert found.ttft_ms == pytest.approx(float(np.mean(expected.ttft)))
    assert found.tpot_ms == pytest.approx(float(np.mean(expected.tpot)))


def test_a_lone_client_pays_the_way_and_the_intake():
    load, path = scenario(1, KERNELS), ClientPath(0.05, 0.01, 20e-6)
    requests = load.workload.num_requests
    assert requests is not None
    lengths = simulate(load, "plain", 0, Path()).requests.prompt_tokens
    more = run_waves(load, "plain", path).ttft_ms - run_waves(load, "plain", NO_PATH).ttft_ms
    assert more == pytest.approx(60 + 20e-3 * float(np.mean(lengths)), abs=1e-3)


def test_prompts_are_taken_in_one_after_another():
    """The first of ten waves waits for 4.5 intakes on average, the others, which ended apart, for one and a bit."""
    load, path = scenario(8, KERNELS), ClientPath(0.0, 0.1, 0.0)
    more = run_waves(load, "plain", path).ttft_ms - run_waves(load, "plain", NO_PATH).ttft_ms
    assert 0.1 * 450 + 0.9 * 100 - 30 < more < 250


def test_engines_that_schedule_ahead_start_a_prompt_a_step_later():
    """Of the size of a decode step; not where the simulated server does so itself."""
    for async_scheduling, least, most in ((False, 5.0, 9.0), (True, 0.0, 0.0)):
        load = scenario(4, {"kind": "roofline", "engine": "vllm"}, async_scheduling=async_scheduling)
        record, setup = simulate(load, "plain", 0, Path()), set_up(load, "plain", Path())
        assert least <= step_ahead_ms(record, setup) <= most


LLAMA = ("llama-3.1-70b", "b200-sxm"), ("llama-3.1-70b", "h100-sxm"), ("gpt-oss-120b", "h200-sxm")


@pytest.mark.parametrize(
    ("backend", "model", "gpu", "shape", "tp", "expected"),
    [
        ("trtllm", *LLAMA[0], (1024, 1024), 4, {"max_num_batched_tokens": 16384, "batch_wait_timeout_iters": 20}),
        ("trtllm", *LLAMA[0], (1024, 1024), 8, {"max_num_batched_tokens": 16384, "batch_wait_timeout_iters": None}),
        ("trtllm", *LLAMA[0], (8192, 1024), 4, {"batch_wait_timeout_iters": None}),
        ("trtllm", *LLAMA[2], (1024, 1024), 4, {"max_num_batched_tokens": 20000, "batch_wait_timeout_iters": None}),
        ("trtllm", *LLAMA[1], (2048, 128), 4, {"max_num_batched_tokens": None}),
        ("vllm", *LLAMA[0], (1024, 1024), 4, {"max_num_batched_tokens": 8192, "max_cudagraph_capture_size": 0}),
        ("vllm", *LLAMA[1], (1024, 1024), 4, {"max_num_batched_tokens": 8192, "max_cudagraph_capture_size": None}),
        ("vllm", *LLAMA[2], (1024, 1024), 4, {"max_cudagraph_capture_size": 2048}),
        ("sglang", *LLAMA[2], (1024, 1024), 4, {"max_num_batched_tokens": None, "preset": "sglang"}),
    ],
)
def test_recipes_say_what_the_scripts_do(backend, model, gpu, shape, tp, expected):
    served = Served(backend, find_gpu(gpu), find_model(model, Path()))
    found = engine_arguments(served, Setting(*shape, 8, tp))
    assert {key: found.get(key) for key in expected} == expected
    assert (found["tensor_parallel_size"], found["max_num_seqs"]) == (tp, 8)


def test_experts_of_vllm_on_hopper_are_marlins():
    kinds = {
        (backend, gpu): cost_arguments(Served(backend, find_gpu(gpu), find_model("gpt-oss-120b", Path()))).get(
            "experts_kernel"
        )
        for backend in ("vllm", "trtllm")
        for gpu in ("h200-sxm", "b200-sxm")
    }
    assert [key for key, kernel in kinds.items() if kernel == "marlin"] == [("vllm", "h200-sxm")]
