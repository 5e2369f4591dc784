"""A K table in the words of vLLM, SGLang and TensorRT-LLM. Keys drift between releases: this says what is from when.

| engine | from | form | source |
|---|---|---|---|
| vLLM | 0.25 | [[first, last, K], ...] | docs v0.25.0, `v1/spec_decode/dynamic/utils.py` |
| SGLang | 0.5 | one number of steps | `server_args.py` |
| SGLang | main, 2026-11 | steps by batch size | `srt/speculative/adaptive_spec_params.py`, `adaptive_step_router.py` |
| TensorRT-LLM | 1.2 | keys are lower bounds, 1 among them | `llmapi/llm_args.py` before pull request 10860 |
| TensorRT-LLM | 1.3 | keys are upper bounds, no drafts above the last | pull request 10860, `llmapi/llm_args.py` |
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sim.errors import ScenarioError
from sim.experiment.k_table import KRange

Json = dict[str, Any]

#: Version from which each form is known, newest first; the first is the default.
KNOWN: dict[str, tuple[str, ...]] = {
    "vllm": ("0.25",),
    "sglang": ("main", "0.5"),
    "trtllm": ("1.3", "1.2"),
}
ENGINES = tuple(KNOWN)

#: Keys of ours that are vLLM's too (`vllm/config/speculative.py`).
_VLLM_KEYS = ("method", "model", "draft_tensor_parallel_size", "parallel_drafting")
_VLLM_TESTED = ("eagle", "eagle3", "dflash")

_SGLANG_ALGORITHMS = {
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "EAGLE",
    "deepseek_mtp": "EAGLE",
    "draft_model": "STANDALONE",
}
_TRTLLM_TYPES = {
    "eagle": "Eagle",
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "deepseek_mtp": "MTP",
    "draft_model": "Draft_Target",
}


@dataclass(frozen=True, slots=True)
class Table:
    """What is exported.

    Attributes:
        config: the arm's `speculative_config` as vLLM spells it, keys without a value left out.
        ranges: from batch size 1 without gaps.
        fixed_k: the best single K, for engines that cannot take the table.
    """

    config: Json
    ranges: tuple[KRange, ...]
    fixed_k: int

    @property
    def most(self) -> int:
        """The largest K."""
        return max(one.k for one in self.ranges)

    @property
    def drafter(self) -> str | None:
        """Path or id of the drafter, where the config names one."""
        model = self.config.get("model")
        return model if isinstance(model, str) else None


@dataclass(frozen=True, slots=True)
class Exported:
    """One engine's settings.

    Attributes:
        engine: which.
        version: the form's first version.
        text: what to paste.
        settings: the same as data.
        notes: what the engine does differently, or cannot do.
    """

    engine: str
    version: str
    text: str
    settings: Json
    notes: tuple[str, ...]


def export(table: Table, engine: str, version: str | None = None) -> Exported:
    """The table for one engine.

    Args:
        table: what was found.
        engine: one of `ENGINES`.
        version: of the engine, such as `0.33`; None = the newest form known.

    Raises:
        ScenarioError: no form is known for a version so old.
    """
    return _FORMS[engine, form_of(engine, version)](table)


def form_of(engine: str, version: str | None) -> str:
    """The form that a version of an engine takes.

    Raises:
        ScenarioError: not a version, or older than every known form.
    """
    forms = KNOWN[engine]
    if version is None or version == "main":
        return forms[0]
    if not re.fullmatch(r"\d+(\.\d+)*([a-z]+\d*)?", version):
        raise ScenarioError(f"--target-version {version!r}; allowed: a version such as 0.33, or main")
    found = [form for form in forms if form != "main" and _numbers(form) <= _numbers(version)]
    if not found:
        raise ScenarioError(f"--target-version {version}: no form is known for {engine} before {forms[-1]}")
    return found[0]


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers: forms change between minor releases."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def vllm_config(table: Table) -> Json:
    """`--speculative-config` with `num_speculative_tokens_per_batch_size`; K never exceeds `num_speculative_tokens`."""
    ranges = [[one.first, one.last, one.k] for one in table.ranges]
    known = {key: table.config[key] for key in _VLLM_KEYS if key in table.config}
    return known | {"num_speculative_tokens": table.most, "num_speculative_tokens_per_batch_size": ranges}


def _none(engine: str, version: str) -> Exported:
    return Exported(engine, version, "", {}, ("K = 0 at every batch size: run without a drafter",))


def _vllm(table: Table) -> Exported:
    if not table.most:
        return _none("vllm", "0.25")
    config = vllm_config(table)
    notes = ["ignored with --data-parallel-size above 1", "full CUDA graphs need model runner V2"]
    if any(one.k == 0 for one in table.ranges):
        notes.append("K = 0 keeps the drafter loaded, and its first pass runs in every step")
    if table.config["method"] not in _VLLM_TESTED:
        notes.append(f"vLLM has tested such tables with {', '.join(_VLLM_TESTED)} only")
    if not table.drafter and "mtp" not in str(table.config["method"]):
        notes.append('add "model": the path of the drafter')
    return Exported("vllm", "0.25", f"--speculative-config '{json.dumps(config)}'", config, tuple(notes))


def _sglang_flags(table: Table, k: int) -> Json:
    flags: Json = {"speculative-algorithm": _SGLANG_ALGORITHMS[str(table.config["method"])]}
    if table.drafter:
        flags["speculative-draft-model-path"] = table.drafter
    return flags | {"speculative-num-steps": k, "speculative-eagle-topk": 1, "speculative-num-draft-tokens": k + 1}


def _sglang(table: Table) -> Exported:
    """Slots with a single candidate: the moving average has nothing to choose, so the table holds as it stands."""
    method = str(table.config["method"])
    if not table.most:
        return _none("sglang", "main")
    if method not in ("eagle", "eagle3"):
        return _sglang_fixed(table)
    flags = _sglang_flags(table, table.ranges[0].k or table.most) | {
        "speculative-adaptive": True,
        "speculative-adaptive-config": "adaptive.json",
    }
    slots = {str(one.first): {"candidate_steps": [one.k]} for one in table.ranges}
    text = f"{_command(flags)}\n# adaptive.json\n{json.dumps(slots)}"
    notes = (
        "batch sizes are padded to the next CUDA graph before the slot is looked up",
        "not with attention data parallelism, two-batch overlap or PD multiplexing",
    )
    return Exported("sglang", "main", text, {"flags": flags, "adaptive.json": slots}, notes)


def _sglang_fixed(table: Table) -> Exported:
    method = str(table.config["method"])
    if method not in _SGLANG_ALGORITHMS:
        return Exported("sglang", "0.5", "", {}, (f"SGLang has no counterpart of {method} that drafts K tokens",))
    if not table.fixed_k:
        return _none("sglang", "0.5")
    flags = _sglang_flags(table, table.fixed_k)
    note = f"no K by batch size here: K = {table.fixed_k}, the best single one"
    return Exported("sglang", "0.5", _command(flags), {"flags": flags}, (note,))


def _command(flags: Json) -> str:
    return " ".join(f"--{name}" if value is True else f"--{name} {value}" for name, value in flags.items())


def _trtllm_base(table: Table) -> Json | None:
    kind = _TRTLLM_TYPES.get(str(table.config["method"]))
    if kind is None:
        return None
    most = "num_nextn_predict_layers" if kind == "MTP" else "max_draft_len"
    base: Json = {"decoding_type": kind, most: table.ranges[0].k}
    return base | ({"speculative_model": table.drafter} if table.drafter else {})


def _trtllm(table: Table, version: str, schedule: Callable[[Sequence[KRange]], Json]) -> Exported:
    base = _trtllm_base(table)
    if not table.most:
        return _none("trtllm", version)
    if base is None:
        return Exported("trtllm", version, "", {}, (f"no counterpart of {table.config['method']} in TensorRT-LLM",))
    if table.most > table.ranges[0].k:
        return Exported("trtllm", version, "", {}, ("the first range must have the largest K; this table rises",))
    settings = {"speculative_config": base | schedule(table.ranges)}
    notes = ("the drafter does not run while K = 0",)
    return Exported("trtllm", version, _yaml(settings), settings, notes)


def _upper_bounds(ranges: Sequence[KRange]) -> Json:
    """K up to each key. `max_concurrency` says the same where there is one K and then none."""
    drafting = ranges[:-1] if ranges[-1].k == 0 else ranges
    if len(drafting) == 1:
        return {"max_concurrency": drafting[0].last} if ranges[-1].k == 0 else {}
    return {"draft_len_schedule": {one.last: one.k for one in drafting}}


def _lower_bounds(ranges: Sequence[KRange]) -> Json:
    return {"draft_len_schedule": {one.first: one.k for one in ranges}} if len(ranges) > 1 else {}


def _yaml(settings: Json, indent: str = "") -> str:
    lines = []
    for key, value in settings.items():
        nested = isinstance(value, dict)
        lines.append(f"{indent}{key}:" if nested else f"{indent}{key}: {value}")
        lines += [_yaml(value, indent + "  ")] if nested else []
    return "\n".join(lines)


_FORMS: dict[tuple[str, str], Callable[[Table], Exported]] = {
    ("vllm", "0.25"): _vllm,
    ("sglang", "main"): _sglang,
    ("sglang", "0.5"): _sglang_fixed,
    ("trtllm", "1.3"): lambda table: _trtllm(table, "1.3", _upper_bounds),
    ("trtllm", "1.2"): lambda table: _trtllm(table, "1.2", _lower_bounds),
}
