"""What sources call models, GPUs and engines, in our words. Nothing here is about a single case."""

import re
from pathlib import Path
from typing import NamedTuple

from sim.errors import ScenarioError, SimError
from sim.hardware.catalogue import find_gpu
from sim.models.catalogue import find_model

#: Fine-tunes, renamed and later models with the shape of a catalogue entry: pattern -> entry.
_SAME_SHAPE = (
    (r"vicuna-33b", "llama-33b"),
    (r"(vicuna|llama-1|codellama|longchat)-(7b|13b)", r"llama-2-\2"),
    (r"codellama-70b", "llama-2-70b"),
    (r"(vicuna|llama)-68m", "llama-68m"),
    (r"llama-([23])-(?:chat|instruct)-(\d+b)", r"llama-\1-\2"),
    (r"llama-3-(8b|70b)", r"llama-3.1-\1"),
    (r"deepseek-r1-distill-llama-(8b|70b)", r"llama-3.1-\1"),
    (r"(?:deepseek-r1-distill-qwen|qwen2)-(.+b)", r"qwen2.5-\1"),
    (r"qwq-32b", "qwen2.5-32b"),
    (r"qwama-0\.5b", "qwen2.5-0.5b"),  # Qwen2-0.5B with the vocabulary of Llama 3
    (r"qwen3-coder-30b-a3b", "qwen3-30b-a3b"),
    (r"deepseek-v3\.1", "deepseek-v3"),
    (r"glm-4\.6", "glm-4.5"),
    (r"minimax-m2", "minimax-m2.5"),
    (r"mistral-7b", "mistral-7b-v0.3"),
    (r"mistral-small-3\.[12]-24b", "mistral-small-24b"),
    (r"llama-4-scout", "llama-4-scout-17b-16e"),
)
#: What a name may end in without another shape: tuning, dates, context length, releases.
_ENDINGS = (
    r"-(instruct|chat|thinking|reasoning|it|base|hf|rl|dynamic|terminus|preview|fp16|\d{4}|\d+[km]|v\d+(\.\d+)*)$"
)
#: Weight formats as names spell them, the first that is found; "" where the name says nothing.
_FORMATS = (
    (r"mxfp4", "mxfp4"),
    (r"nvfp4|fp4", "nvfp4"),
    (r"fp8(?=-|$)|w8a8-?fp8", "fp8"),
    (r"quantized[.-]w8a8|w8a8|int8", "int8"),
    (r"quantized[.-]w4a16|w4a16|awq(-int4)?|gptq(-int4)?|int4", "int4"),
    (r"bf16", "bf16"),
)

#: GPUs as sources spell them, letters and digits only. A maker's name without the form factor is that of servers.
_GPUS = (
    (r"h100(80gb)?(sxm5?)?(80gb)?(hbm3)?", "h100-sxm"),
    (r"h100(80gb)?pcie(80gb)?", "h100-pcie"),
    (r"h200(141gb)?(sxm5?)?(141gb)?(hbm3e)?", "h200-sxm"),
    (r"b200(180gb|192gb)?(sxm6?)?", "b200-sxm"),
    (r"a100(80gb)?(sxm4?)?(80gb)?", "a100-sxm-80gb"),
    (r"a100(40gb(sxm4?)?|sxm4?40gb)", "a100-sxm-40gb"),
    (r"a100(80gb)?pcie(80gb)?", "a100-pcie-80gb"),
    (r"rtxpro6000.*", "rtx-pro-6000-se"),
    (r"(rtx)?a6000(48gb)?", "rtx-a6000"),
    (r"(rtx)?(3090|4090)(24gb)?", r"rtx-\2"),
    (r"(l4|l40s|a10g|a30|a40|mi300x|mi325x|h20|gb200|gb300)(\d+gb)?", r"\1"),
)
#: Models of no shape that is simulated, and why.
_INDESCRIBABLE = (
    (r"(flan-)?t5.*", "an encoder-decoder"),
    (r"qwen3-next.*|qwen3\.5.*|kimi-linear.*|minimax-(m1|text).*", "partly linear attention"),
    (r"mamba.*|rwkv.*|jamba.*|nemotron-h.*", "a state-space model"),
)
_NOT_STATED = r"(?i)|not .*|unknown|unstated|n/?a|\?|-"

#: Stated engine -> engine profile, the first pattern that fits.
_ENGINES = (
    (r"vllm v0|vllm v?0\.[0-6]\b", "vllm-0.6"),
    (r"vllm v1 \(2025|vllm v?0\.([789]|1[0-3])\b", "vllm-0.10"),
    (r"vllm", "vllm"),
    (r"sglang", "sglang"),
    (r"tensor-?rt|trt-?llm", "trtllm"),
    (r"llama\.?cpp", "llamacpp"),
    (r"authors'? backend.*gpt-fast", "magicdec"),
    (r"gpt-fast|cuda graphs", "none"),
    (r"hugging ?face|transformers|\bhf\b|prototype|pytorch eager|authors'? code", "hf"),
)


class UnrunnableError(SimError):
    """A case that cannot be run; the message is the reason."""


class Target(NamedTuple):
    """A catalogue id and the format of the weights, `auto` where the name says nothing."""

    model: str
    weight_dtype: str


def target(name: str) -> Target:
    """The model that a source names, by a name or a Hugging Face id.

    Raises:
        UnrunnableError: the catalogue has none of this shape.
    """
    plain = re.sub(r"[\s_()/,]+", "-", name.strip().rsplit("/", 1)[-1].lower()).strip("-")
    plain, dtype = _without_format(plain)
    plain = re.sub(r"^llama-?(\d)", r"llama-\1", plain.removeprefix("meta-"))
    while True:
        if found := _entry(plain):
            own = find_model(found, Path()).weight_dtype
            return Target(found, "auto" if dtype == "nvfp4" and own == "mxfp4" else dtype)
        if (shorter := re.sub(_ENDINGS, "", plain)) == plain:
            raise UnrunnableError(_why_unknown(name, plain))
        plain = shorter


def _why_unknown(name: str, plain: str) -> str:
    if not plain:
        return "model not stated"
    kind = next((what for pattern, what in _INDESCRIBABLE if re.fullmatch(pattern, plain)), None)
    return f"unknown model {name!r}" + (f": {kind}, which is not simulated" if kind else "")


def weight_format(text: str) -> str:
    """The weight format that a text names, `auto` for none."""
    return _without_format(text.strip().lower())[1]


def _without_format(name: str) -> tuple[str, str]:
    for pattern, dtype in _FORMATS:
        if re.search(rf"(^|[-.])({pattern})", name):
            return re.sub(rf"[-.]?\b({pattern})", "", name, count=1).strip("-"), dtype
    return name, "auto"


def _entry(name: str) -> str:
    """The catalogue's entry of that name or shape; "" for none."""
    for pattern, entry in _SAME_SHAPE:
        name = re.sub(f"^{pattern}$", entry, name)
    try:
        find_model(name, Path())
    except ScenarioError:
        return ""
    return name


def gpu(name: str) -> str:
    """Catalogue id of the GPU that a source names.

    Raises:
        UnrunnableError: not stated, or not in the catalogue.
    """
    plain = re.sub(r"\(.*?\)", "", name).strip()
    if re.fullmatch(_NOT_STATED, plain):
        raise UnrunnableError("GPU not stated")
    plain = re.sub(r"(?i)^(\d+ ?[x×] ?)?(nvidia |amd |intel )?(geforce |tesla |instinct )?", "", plain)
    key = re.sub(r"[^a-z0-9]", "", plain.lower())
    known = next((re.sub(f"^{pattern}$", entry, key) for pattern, entry in _GPUS if re.fullmatch(pattern, key)), plain)
    try:
        return find_gpu(known).name
    except ScenarioError:
        raise UnrunnableError(f"unknown GPU {name!r}") from None


def num_gpus(stated: str, name: str) -> int:
    """How many, from the column or the name (`8 x H100`); 1 where neither says.

    Raises:
        UnrunnableError: no whole number.
    """
    in_name = re.match(r"(\d+) ?[x×] ?[A-Za-z]", name.strip())
    text = stated.strip() or (in_name[1] if in_name else "1")
    if not re.fullmatch(r"[1-9]\d{0,4}(\.0+)?", text):
        raise UnrunnableError(f"number of GPUs {stated!r} is not a whole number above 0")
    return round(float(text))


def engine(name: str) -> str:
    """Id of the engine profile nearest to the stated engine.

    Raises:
        UnrunnableError: not stated, or no engine like it.
    """
    found = next((profile for pattern, profile in _ENGINES if re.search(pattern, name.lower())), None)
    if found is None:
        raise UnrunnableError("engine not stated" if re.fullmatch(_NOT_STATED, name) else f"unknown engine {name!r}")
    return found


def is_prototype(name: str) -> bool:
    """Whether this is a research prototype on eager kernels."""
    try:
        return engine(name) == "hf"
    except UnrunnableError:
        return False


def engine_is_stretched(name: str) -> bool:
    """Whether the profile was made for a much later version: SGLang before 0.5."""
    return bool(re.search(r"sglang v?0\.[0-4]\.|sglang \(2025-0[1-6]", name.lower()))


def prefills_apart(name: str) -> bool:
    """Whether a step of this engine is either prefill or decode.

    vLLM V0: chunked prefill is off by default. SGLang: `enable_mixed_chunk` of `server_args.py` is, and is switched off
    with speculation.
    """
    return engine(name) in ("vllm-0.6", "sglang")


def overlaps(name: str) -> bool:
    """Whether vLLM of this version schedules a step while the one before runs: by default since 0.14."""
    version = re.search(r"vllm v?(\d+)\.(\d+)", name.lower())
    return version is None or (int(version[1]), int(version[2])) >= (0, 14)
