"""The weight format of a checkpoint, from `quantization_config` and `torch_dtype` of its `config.json`."""

from collections.abc import Mapping
from typing import Any

from sim.models.hf_fields import Fields
from sim.models.model import WeightDtype

_BY_METHOD: dict[str, WeightDtype] = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    "modelopt_fp4": "nvfp4",
    "bitsandbytes": "int8",
}
_BY_BITS: dict[tuple[int, str], WeightDtype] = {
    (8, "float"): "fp8",
    (4, "float"): "nvfp4",
    (8, "int"): "int8",
    (4, "int"): "int4",
}


def weight_dtype(fields: Fields, quantization: object) -> WeightDtype:
    """The format; problems are left with `fields`. A 32-bit checkpoint is served in 16 bits, as vLLM does."""
    if isinstance(quantization, dict) and quantization:
        found = _quantized(quantization)
        if found is None:
            fields.complain("quantization_config", f"unknown format {_summary(quantization)}; set weight_dtype instead")
        return found or "bf16"
    return "fp16" if fields.value("torch_dtype") == "float16" or fields.value("dtype") == "float16" else "bf16"


def _quantized(config: Mapping[str, Any]) -> WeightDtype | None:
    if config.get("load_in_4bit") is True:
        return "int4"
    algorithm = str(config.get("quant_algo", "")).lower()
    method = str(config.get("quant_method", "")).lower()
    for word in (algorithm, method):
        if word in _BY_METHOD:
            return _BY_METHOD[word]
    kind = "float" if method == "compressed-tensors" and _group(config).get("type") == "float" else "int"
    bits = _group(config).get("num_bits", config.get("bits", config.get("w_bit")))
    return _BY_BITS.get((bits, kind)) if isinstance(bits, int) else None


def _group(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Weights of the first group of a compressed-tensors configuration."""
    groups = config.get("config_groups")
    first: object = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    return weights if isinstance(weights, dict) else {}


def _summary(config: Mapping[str, Any]) -> str:
    keys = ("quant_method", "quant_algo", "bits", "format")
    return ", ".join(f"{key}={config[key]!r}" for key in keys if key in config) or "without quant_method"
