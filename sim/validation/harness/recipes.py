"""Engine arguments of the servers in public dumps, as far as the scripts that started them say.

InferenceMAX, now InferenceX: `benchmarks/*.sh`, `benchmarks/single_node/*.sh`, of the versions that served the models
in question (Llama-70B until the end of 2025). What is not listed is the preset's.
"""

from typing import Any, NamedTuple

from sim.hardware.gpu import Gpu
from sim.models.model import Model
from sim.validation.harness.waves import SHAPES
from sim.validation.host_fit import Setting


class Served(NamedTuple):
    """A server: backend of the dump, GPU and model."""

    backend: str
    gpu: Gpu
    model: Model


def engine_arguments(served: Served, setting: Setting) -> dict[str, Any]:
    """`engine` of the scenario of one setting."""
    common = {
        "preset": served.backend,
        "tensor_parallel_size": setting.tp,
        "enable_expert_parallel": setting.expert_parallel,
        "max_num_seqs": setting.concurrency,
        "enable_prefix_caching": False,
    }
    special = {"vllm": _vllm, "trtllm": _trtllm}.get(served.backend)
    return {**common, **(special(served, setting) if special else {})}


def cost_arguments(served: Served) -> dict[str, Any]:
    """`cost_model` of the scenario: `gptoss_fp4_{h100,h200}*.sh` set `VLLM_MXFP4_USE_MARLIN=1`."""
    marlin = served.backend == "vllm" and served.gpu.arch == "Hopper" and served.model.weight_dtype == "mxfp4"
    return {"kind": "roofline", "engine": served.backend, **({"experts_kernel": "marlin"} if marlin else {})}


def _vllm(served: Served, setting: Setting) -> dict[str, Any]:
    """Scripts `70b_*_{h100,h200}_slurm.sh` leave graphs at their default.

    `gptoss_fp4_*.sh` capture up to 2048 tokens; `70b_*_b200_*.sh` set `cudagraph_mode: FULL_DECODE_ONLY`.
    """
    found: dict[str, Any] = {"max_num_batched_tokens": 8192}
    if served.model.experts:
        found["max_cudagraph_capture_size"] = 2048
    elif served.gpu.arch == "Blackwell":
        found["max_cudagraph_capture_size"] = 0
    return found


def _trtllm(served: Served, setting: Setting) -> dict[str, Any]:
    """Scripts `70b_fp*_{b200,h200}_trt_slurm.sh` and `gptoss_fp4_*_trt*.sh`.

    The former wait for batches at 1k/1k below 8 GPUs. Their `max_num_tokens` is 16384 in all versions for FP8 on B200,
    in some for the rest, which otherwise take `max_model_len`.
    """
    shape = (setting.isl, setting.osl)
    if shape not in SHAPES:
        return {}
    if served.model.experts:
        return {"max_num_batched_tokens": 20000}
    waits = {"batch_wait_timeout_iters": 20, "batch_wait_max_tokens_ratio": 0.9}
    return {"max_num_batched_tokens": 16384, **(waits if shape == (1024, 1024) and setting.tp < 8 else {})}
