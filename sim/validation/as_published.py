"""What sources call things, in our words: model, GPU, engine, drafter. Nothing here is about a single case."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sim.errors import ScenarioError, SimError
from sim.hardware.catalogue import find_gpu
from sim.models.catalogue import find_model

#: Fine-tunes and renamed models with the shape of a catalogue entry: pattern -> entry.
_SAME_SHAPE = (
    (r"vicuna-(\d+b).*", r"llama-2-\1"),
    (r"llama-2-chat-(\d+b)", r"llama-2-\1"),
    (r"llama-3-(8b|70b)", r"llama-3.1-\1"),
    (r"qwama-0\.5b", "qwen2.5-0.5b"),  # Qwen2-0.5B with the vocabulary of Llama 3
)
#: What a name may end in without another shape: tuning and context length.
_ENDINGS = r"-(instruct(-\d+)?|chat|thinking|it|base|\d+k)$"
_FORMATS = {"fp8": "fp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4", "fp4": "nvfp4"}

#: A maker's name without the form factor means the variant of servers.
_GPUS = {
    "h100": "h100-sxm", "h10080gb": "h100-sxm", "a100": "a100-sxm-80gb", "a10080gb": "a100-sxm-80gb",
    "a10040gb": "a100-sxm-40gb", "rtxpro6000": "rtx-pro-6000-se",
}  # fmt: skip

#: Stated engine -> engine profile, the first pattern that fits.
_ENGINES = (
    (r"vllm v0|vllm 0\.[0-6]\b", "vllm-0.6"),
    (r"vllm v1 \(2025|vllm 0\.([789]|1[0-3])\b", "vllm-0.10"),
    (r"vllm", "vllm"),
    (r"sglang", "sglang"),
    (r"tensorrt|trtllm", "trtllm"),
    (r"llama\.?cpp", "llamacpp"),
    (r"hugging ?face|transformers|\bhf\b|prototype|pytorch eager", "hf"),
    (r"authors'? backend.*gpt-fast", "magicdec"),
    (r"gpt-fast|cuda graphs", "none"),
)
#: Stated drafter -> method, the first pattern that fits.
_METHODS = (
    (r"n-?gram|prompt lookup|pld", "ngram"),
    (r"eagle-?3", "eagle3"),
    (r"eagle", "eagle"),
    (r"dflash", "dflash"),
    (r"mtp|nextn", "mtp"),
    (r"draft (model )?", "draft_model"),
)


class UnrunnableError(SimError):
    """A case that cannot be run; the message is the reason."""


class Target(NamedTuple):
    """A catalogue id and the format of the weights, `auto` where the name says nothing."""

    model: str
    weight_dtype: str


def target(name: str) -> Target:
    """The model that a source names.

    Raises:
        UnrunnableError: the catalogue has none of this shape.
    """
    words = name.split()
    dtypes = [_FORMATS[word.lower()] for word in words if word.lower() in _FORMATS]
    plain = "-".join(word for word in words if word.lower() not in _FORMATS).rsplit("/", 1)[-1].lower()
    while (shorter := re.sub(_ENDINGS, "", plain)) != plain:
        plain = shorter
    for pattern, entry in _SAME_SHAPE:
        plain = re.sub(f"^{pattern}$", entry, plain)
    try:
        return Target(find_model(plain, Path()).name and plain, dtypes[0] if dtypes else "auto")
    except ScenarioError:
        raise UnrunnableError(f"unknown model {name!r}") from None


def gpu(name: str) -> str:
    """Catalogue id of the GPU that a source names.

    Raises:
        UnrunnableError: not stated, or not in the catalogue.
    """
    plain = re.sub(r"\(.*?\)", "", name).strip()
    if not plain:
        raise UnrunnableError("GPU not stated")
    key = re.sub(r"[^a-z0-9]", "", plain.lower())
    try:
        return find_gpu(_GPUS.get(key, plain)).name
    except ScenarioError:
        raise UnrunnableError(f"unknown GPU {name!r}") from None


def engine(name: str) -> str:
    """Id of the engine profile nearest to the stated engine.

    Raises:
        UnrunnableError: not stated, or no engine like it.
    """
    found = next((profile for pattern, profile in _ENGINES if re.search(pattern, name.lower())), None)
    if found is None:
        raise UnrunnableError(f"unknown engine {name!r}" if name else "engine not stated")
    return found


def engine_is_stretched(name: str) -> bool:
    """Whether the profile was made for a much later version: SGLang before 0.5."""
    return bool(re.search(r"sglang 0\.[0-4]\.|sglang \(2025-0[1-6]", name.lower()))


def prefills_apart(name: str) -> bool:
    """Whether a step of this engine is either prefill or decode: vLLM V0, whose chunked prefill is off by default."""
    return engine(name) == "vllm-0.6"


def overlaps(name: str) -> bool:
    """Whether vLLM of this version schedules a step while the one before runs: by default since 0.14."""
    version = re.search(r"vllm v?(\d+)\.(\d+)", name.lower())
    return version is None or (int(version[1]), int(version[2])) >= (0, 14)


def drafts(k_or_tree: str, notes: str) -> dict[str, object]:
    """`num_speculative_tokens`, and the tree where there is one.

    Raises:
        UnrunnableError: the shape is not stated.
    """
    text = k_or_tree.lower().replace("-", "").replace("=", " ")
    if chain := re.fullmatch(r"(?:chain )?(?:k )?(\d+)", text):
        return {"num_speculative_tokens": int(chain[1])}
    if grown := re.search(r"(\d+) steps,? topk (\d+),? (\d+) draft tokens", text) or re.search(
        r"steps (\d+) topk (\d+) draft_tokens (\d+)", text
    ):
        return _grown(*map(int, grown.groups()))
    if block := re.fullmatch(r"block (\d+)", text):
        return {"num_speculative_tokens": int(block[1]) - 1}  # the block holds the token just sampled
    if lookup := re.fullmatch(r"match (\d+), draft (\d+)", text):
        return {"num_speculative_tokens": int(lookup[2])}
    nodes = re.fullmatch(r"tree k (\d+)", text)
    depth, wide = (
        re.search(r"depth (\d+)", notes),
        re.search(rf"k={nodes[1]} branching (\d+)", notes) if nodes else None,
    )
    if nodes and depth and wide:
        return _grown(int(depth[1]), int(wide[1]), int(nodes[1]) + 1)
    raise UnrunnableError(f"number of drafts or shape of the tree not stated: {k_or_tree!r}")


def _grown(steps: int, top_k: int, draft_tokens: int) -> dict[str, object]:
    """SGLang's terms: its draft tokens count the root; one node per level is a chain."""
    if top_k == 1:
        return {"num_speculative_tokens": steps}
    tree = {"kind": "dynamic", "depth": steps, "top_k": top_k}
    return {"num_speculative_tokens": draft_tokens - 1, "tree": tree}


def method(name: str) -> str:
    """Our name of the drafter.

    Raises:
        UnrunnableError: no such method here, or not enough is known of it.
    """
    found = next((ours for pattern, ours in _METHODS if re.match(pattern, name.lower())), None)
    if found is None:
        raise UnrunnableError(f"method {name!r} is not simulated, or its settings are not stated")
    return found


def speculative_config(name: str, k_or_tree: str, notes: str, model: str, num_gpus: int) -> dict[str, object]:
    """The arm's `speculative_config`.

    Raises:
        UnrunnableError: see `method` and `drafts`; or the draft model is unknown.
    """
    ours = method(name)
    config: dict[str, object] = {"method": ours, **drafts(k_or_tree, notes)}
    if ours == "draft_model":
        config |= _draft_model(re.sub(r"(?i)^draft (model )?", "", name).split(",")[0], model, num_gpus)
    if ours == "dflash" and "coder" in model:
        config["draft_layers"] = 8  # arXiv 2602.06036: 5 layers, 8 for Coder models
    return config


def _draft_model(name: str, model: str, num_gpus: int) -> dict[str, object]:
    """A draft model on as many GPUs as the target where its heads divide among them, else on one."""
    drafter = target(name).model
    shape = find_model(drafter, Path())
    return {
        "model": drafter,
        "use_heterogeneous_vocab": shape.vocab != find_model(model, Path()).vocab,
        **({"draft_tensor_parallel_size": 1} if shape.q_heads % num_gpus else {}),
    }


def depth(config: Mapping[str, object]) -> int:
    """The most drafts that a step can accept."""
    tree = config.get("tree")
    drafted = config["num_speculative_tokens"]
    return int(tree["depth"]) if isinstance(tree, Mapping) else int(str(drafted))
