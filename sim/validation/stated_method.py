"""What sources say of the drafter: its method, how many drafts, the shape of the tree, the draft model."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sim.models.catalogue import find_model
from sim.validation import as_published
from sim.validation.as_published import UnrunnableError

#: Stated drafter -> method, the first pattern that its beginning fits.
_METHODS = (
    (r"suffix", "suffix"),
    (r"\[?n-?gram|prompt[ -]lookup|pld", "ngram"),
    (r"(.* )?\(?mtp|nextn|(eagle|deepseek)\W*\(?(mtp|nextn)", "mtp"),
    (r"eagle-?3", "eagle3"),
    (r"eagle|hass\b", "eagle"),  # HASS (arXiv 2408.15766) is EAGLE's head, trained otherwise
    (r"dflash", "dflash"),
    (r"medusa", "medusa"),
    (r"lookahead", "lookahead"),
    (r"rest\b", "rest"),
    (r"layerskip|self-speculation \(layerskip", "layerskip"),
    (r"draft[ _]|.*\bdraft(er)?( model)?\)?$|sps\b", "draft_model"),
)


class NamedTree(NamedTuple):
    """Size of a published tree."""

    nodes: int
    depth: int


_NAMED_TREES = {"medusa_7b_63": NamedTree(63, 4), "eagle_25": NamedTree(25, 5)}


def method(name: str) -> str:
    """Our name of the drafter.

    Raises:
        UnrunnableError: no such method here, or not enough is known of it.
    """
    found = next((ours for pattern, ours in _METHODS if re.match(pattern, name.strip().lower())), None)
    if found is None:
        raise UnrunnableError(f"method {name!r} is not simulated, or its settings are not stated")
    return found


def drafts(k_or_tree: str, notes: str = "") -> dict[str, object]:
    """`num_speculative_tokens`, and the tree where there is one.

    Raises:
        UnrunnableError: the shape is not stated.
    """
    if k_or_tree in _NAMED_TREES:
        return {"num_speculative_tokens": _NAMED_TREES[k_or_tree].nodes, "tree": {"kind": "named", "name": k_or_tree}}
    text = re.sub(r"[=:]", " ", k_or_tree.strip().lower().replace("top-k", "topk").replace("top_k", "topk"))
    text = re.sub(r"speculative[_ ]|\b(num|eagle)[_ ]", "", re.sub(r"\s+", " ", text)).strip()
    if chain := re.fullmatch(
        r"(?:(?:chain|draft|gamma|k|mtp|tokens|length)[ -]?)*(\d+)(?: ?(?:draft )?tokens?)?(?: ?chain)?", text
    ):
        return {"num_speculative_tokens": int(chain[1])}
    if block := re.fullmatch(r"block(?: size)? (\d+)", text):
        return {"num_speculative_tokens": int(block[1]) - 1}  # the block holds the token just sampled
    if lookup := re.fullmatch(r"match \d+, draft (\d+)", text):
        return {"num_speculative_tokens": int(lookup[1])}
    if window := re.fullmatch(r"w ?(\d+),? n ?(\d+),? g ?(\d+)", text):
        names = ("max_window_size", "max_ngram_size", "max_verification_set_size")
        return dict(zip(names, map(int, window.groups()), strict=True))
    return _tree(text, notes) or _unstated(k_or_tree)


def _unstated(k_or_tree: str) -> dict[str, object]:
    raise UnrunnableError(f"number of drafts or shape of the tree not stated: {k_or_tree!r}")


def _tree(text: str, notes: str) -> dict[str, object]:
    """A grown tree: steps, top-k and draft tokens in any order, or SGLang's three numbers; empty where not stated."""
    if three := re.fullmatch(r"\(?(\d+) ?[,/-] ?(\d+) ?[,/-] ?(\d+)\)?", text):
        steps, top_k, tokens = map(int, three.groups())
        return _grown(steps, top_k, tokens) if steps < tokens else {}
    if nodes := re.fullmatch(r"tree k (\d+)", text):
        wide, depth = re.search(rf"k={nodes[1]} branching (\d+)", notes), re.search(r"depth (\d+)", notes)
        return _grown(int(depth[1]), int(wide[1]), int(nodes[1]) + 1) if wide and depth else {}
    found = [
        re.search(pattern, text)
        for pattern in (
            r"(\d+)[ -](?:steps?|levels?)\b|\b(?:steps?|depth|levels?) (\d+)",
            r"\b(?:topk|branching) (\d+)",
            r"(\d+) (?:draft )?(?:tokens|nodes)|draft_?\s?tokens (\d+)",
        )
    ]
    numbers = [int(next(filter(None, one.groups()))) for one in found if one]
    return _grown(*numbers) if len(numbers) == len(found) else {}


def _grown(steps: int, top_k: int, draft_tokens: int) -> dict[str, object]:
    """SGLang's terms: its draft tokens count the root; one node per level is a chain."""
    if top_k == 1:
        return {"num_speculative_tokens": steps}
    tree = {"kind": "dynamic", "depth": steps, "top_k": top_k}
    return {"num_speculative_tokens": draft_tokens - 1, "tree": tree}


def speculative_config(name: str, k_or_tree: str, notes: str, model: str, num_gpus: int) -> dict[str, object]:
    """The arm's `speculative_config`.

    Raises:
        UnrunnableError: see `method` and `drafts`; or the draft model is unknown.
    """
    ours = method(name)
    shape = _number_in_name(name) if not k_or_tree.strip() and ours == "mtp" else k_or_tree
    config: dict[str, object] = {"method": ours, **drafts(shape, notes)}
    if ours == "draft_model":
        config |= _draft_model(name, model, num_gpus)
    if config.get("tree") == {"kind": "named", "name": "medusa_7b_63"}:
        config["num_heads"] = 5  # the heads published with that tree
    return config


def _number_in_name(name: str) -> str:
    """`MTP-1`, `MTP (2 tokens)`: drafts that the name of the method states."""
    found = re.search(r"(\d+)\)?$|\((\d+) ", name.strip())
    return next(filter(None, found.groups())) if found else ""


def _draft_model(name: str, model: str, num_gpus: int) -> dict[str, object]:
    """A draft model on as many GPUs as the target where its heads divide among them, else on one."""
    inner = re.search(r"\((?:.*[ /])?([\w.-]+) draft\)", name)
    plain = inner[1] if inner else re.sub(r"(?i)\bdraft(er)?([ _]model)?\b[: ]*|^sps\b", "", name).split(",")[0].strip()
    drafter = as_published.target("llama-68m" if plain.lower() == "68m" else plain)
    shape = find_model(drafter.model, Path())
    return {
        "model": drafter.model,
        "use_heterogeneous_vocab": shape.vocab != find_model(model, Path()).vocab,
        **({"draft_tensor_parallel_size": 1} if shape.q_heads % num_gpus else {}),
    }


def depth(config: Mapping[str, object]) -> int:
    """The most drafts that a step can accept."""
    tree = config.get("tree")
    if isinstance(tree, Mapping):
        return int(tree["depth"]) if "depth" in tree else _NAMED_TREES[tree["name"]].depth
    if "max_ngram_size" in config:
        return int(str(config["max_ngram_size"])) - 1
    return int(str(config["num_speculative_tokens"]))
