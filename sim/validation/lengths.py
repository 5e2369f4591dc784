"""Prompt and output lengths of a published case: stated, else of the same data set elsewhere, else assumed."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.acceptance.recording import read_recording, recorded_methods
from sim.catalogue import normalised
from sim.validation.published import PublishedRow

#: Where nothing is known. Steps at batch 1 hardly depend on them.
ASSUMED_TOKENS = 256
#: A reasoning model's answer to a grade-school problem, where only "long" is said.
LONG_TOKENS = 2000
#: How lengths vary over requests where only a mean is known.
ASSUMED_CV = 0.5

_SUFFIX = "_accepted.csv"


class Lengths(NamedTuple):
    """Mean lengths in tokens, how they vary over requests, and what of it is assumed ("" for nothing)."""

    prompt: int
    output: int
    prompt_cv: float
    output_cv: float
    assumed: str


#: What vLLM's `benchmark_serving.py` sends: first turns of ShareGPT with prompts of at most 1,024 tokens and 2,048 in
#: all. Its logs agree: 200 prompts of Llama-3-8B-Instruct are 42,659 and 40,376 tokens, 1,000 of Llama-3.1-8B-Instruct
#: 215,196 and 197,107. Prompts vary as a server's histogram of 1,003 of them does; outputs are taken to vary alike.
_BENCHMARK_SERVING = {"sharegpt": Lengths(213, 202, 1.08, 1.08, "as vLLM's benchmark_serving.py sends them")}


def recordings(folder: Path) -> dict[str, Path]:
    """Recorded acceptance sequences by data set, in `folder`/acceptance or `folder` itself."""
    there = folder / "acceptance"
    paths = sorted((there if there.is_dir() else folder).glob(f"*{_SUFFIX}*"))
    return {normalised(path.name.split(_SUFFIX)[0]): path for path in paths}


class KnownLengths:
    """What a folder says about the lengths of data sets.

    Args:
        rows: all of its rows; one row's lengths serve other rows of the same data set.
        recorded: its recordings.

    Raises:
        ScenarioError: a recording cannot be read.
    """

    def __init__(self, rows: Iterable[PublishedRow], recorded: Mapping[str, Path]) -> None:
        for path in recorded.values():
            recorded_methods(path)
        self._recorded = recorded
        stated: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row in rows:
            prompt, output = _number(row.input_len), _number(row.output_len)
            if prompt and output and normalised(row.dataset):
                stated[normalised(row.dataset)].append((prompt, output))
        self._stated = {name: tuple(np.median(pairs, axis=0).astype(int).tolist()) for name, pairs in stated.items()}

    def of(self, row: PublishedRow, *, sent_by_vllm: bool = False) -> Lengths:
        """Lengths of a case; what its own row states comes first.

        Args:
            row: of the case.
            sent_by_vllm: requests come from vLLM's own benchmark client, which picks and cuts prompts in its own way.
        """
        name = normalised(row.dataset)
        if sent_by_vllm and name in _BENCHMARK_SERVING and not row.output_len:
            return _BENCHMARK_SERVING[name]
        if name in self._recorded and not row.output_len:
            return _measured(self._recorded[name])
        elsewhere = self._stated.get(name)
        prompt, how_prompt = _stated_or(row.input_len, elsewhere[0] if elsewhere else None)
        output, how_output = _stated_or(row.output_len, elsewhere[1] if elsewhere else None)
        assumed = "; ".join(f"{what} {how}" for what, how in (("prompt", how_prompt), ("output", how_output)) if how)
        return Lengths(prompt, output, ASSUMED_CV, ASSUMED_CV, assumed)


def _stated_or(text: str, elsewhere: int | None) -> tuple[int, str]:
    """A length and what about it is assumed."""
    if number := _number(text):
        return number, ""
    limit = re.fullmatch(r"(?:<=?|≤|up to|max\.?(?:imum)?(?: of)?)\s*(.+)", text.lower())
    if limit and (most := _number(limit[1])):
        return max(most // 2, 1), f"half of its limit ({max(most // 2, 1)})"
    if "long" in text.lower():
        return LONG_TOKENS, f"long ({LONG_TOKENS})"
    if elsewhere:
        return elsewhere, f"as elsewhere ({elsewhere})"
    return ASSUMED_TOKENS, f"not stated ({ASSUMED_TOKENS})"


def _number(text: str) -> int | None:
    """A length: `94`, `~94`, `1,024`, `1.5k`; nothing for 0 and for what is no single number."""
    found = re.fullmatch(r"~?\s*(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)\s*(k?)(?: tokens)?", text.strip().lower())
    return (round(float(found[1].replace(",", "")) * (1000 if found[2] else 1)) or None) if found else None


def _measured(path: Path) -> Lengths:
    recording = read_recording(path, recorded_methods(path)[0], False)
    output = recording.decoded_tokens + 1.0
    prompt = output if recording.prompt_tokens is None else recording.prompt_tokens.astype(float)
    means = round(float(prompt.mean())), round(float(output.mean()))
    prompt_cv, output_cv = (float(x.std() / x.mean()) for x in (prompt, output))
    return Lengths(*means, prompt_cv, output_cv, f"as in {path.name}")
