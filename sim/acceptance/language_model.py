"""A tiny pair of language models counted from a text: n-gram models of different order, for `distributions`.

P_n(y | the n-1 tokens before) = (count + s P_(n-1)(y | one token less)) / (all counts + s), down to P_0 = 1 / V: the
hierarchical Dirichlet smoothing of MacKay and Peto (1995), with one strength s. The text is read as a ring, so that
every place has a full context and a next token.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from sim.acceptance.base import Floats, Ints
from sim.acceptance.text_process import TextProcess, TokenDriven
from sim.spec import Spec
from sim.text_file import read_text, refuse
from sim.verification.base import VerificationRule

#: Contexts x tokens of the larger model.
MAX_CELLS = 4_000_000
_WORD = re.compile(r"\w+|[^\w\s]")


class LanguageModels(Spec):
    """Target and drafter: n-gram models of one text. The target with more context, the drafter with less."""

    text: str = Field(min_length=1, description="a text file, UTF-8 or gzip")
    tokens: Literal["characters", "words"] = Field(
        default="characters", description="words are runs of letters and digits, or single signs, in lower case"
    )
    target_order: int = Field(default=4, ge=1, le=8, description="n: the target sees n - 1 tokens before")
    draft_order: int = Field(default=2, ge=1, le=8, description="n of the drafter")
    temperature: float = Field(default=1.0, ge=0.05, le=10, description="both p and q become p^(1/temperature)")
    smoothing: float = Field(default=0.5, gt=0, le=1000, description="s: strength of the shorter context, in counts")
    vocabulary: int = Field(
        default=64, ge=2, le=4096, description="the most frequent tokens kept apart; all others are one token"
    )

    def process(self, rule: VerificationRule) -> TextProcess:
        """The text that the rule writes with these models.

        Raises:
            ScenarioError: the file cannot be read, is too short, or makes too large a model.
        """
        chain = _count(self)
        orders = (self.target_order, self.draft_order)
        p, q = (_at_temperature(chain.model(order), self.temperature) for order in orders)
        return TokenDriven(rule.written(p, q), rule.kept(p, q), chain.start, chain.next_context)

    def check(self) -> None:
        """Read the text, raising as `process` does."""
        _count(self)


@dataclass(frozen=True, eq=False)
class _Contexts:
    """Every context that occurs, from the empty one to the longest, and the counts after it.

    Attributes:
        rows: by length: (n, V) smoothed distributions.
        parents: by length from 1 on: (n,) index, among the contexts one token shorter, of the context less its oldest.
        next_context: (C, V) longest known context after one more token; all lengths end to end.
        start: (C,) how often each is the longest context of a place in the text.
    """

    rows: tuple[Floats, ...]
    parents: tuple[Ints, ...]
    next_context: Ints
    start: Floats

    def model(self, order: int) -> Floats:
        """(C, V) distributions of the model that sees `order` - 1 tokens."""
        level = self.rows[0]
        levels = [level]
        for length in range(1, len(self.rows)):
            level = self.rows[length] if length < order else level[self.parents[length - 1]]
            levels.append(level)
        return np.concatenate(levels)


@lru_cache(maxsize=8)
def _count(models: LanguageModels) -> _Contexts:
    path = Path(models.text)
    tokens, size = _read(path, models)
    longest = max(models.target_order, models.draft_order) - 1
    grams, parents = _grams(tokens, size, longest)
    counts = [int(gram.max()) + 1 for gram in grams]
    if sum(counts) * size > MAX_CELLS:
        found = f"{sum(counts):,} contexts x {size} tokens"
        raise refuse(path, f"{found}: more than {MAX_CELLS:,} cells; lower the orders or the vocabulary")
    rows: list[Floats] = []
    for length, gram in enumerate(grams):
        seen = np.zeros((counts[length], size))
        np.add.at(seen, (gram, tokens), 1.0)
        shorter = rows[-1][parents[length - 1]] if length else np.full((1, size), 1.0 / size)
        rows.append((seen + models.smoothing * shorter) / (seen.sum(axis=1, keepdims=True) + models.smoothing))
    start = np.zeros(sum(counts))
    np.add.at(start, sum(counts[:-1]) + grams[-1], 1.0 / len(tokens))
    return _Contexts(tuple(rows), tuple(parents), _next_contexts(tokens, grams, parents, counts, size), start)


def _read(path: Path, models: LanguageModels) -> tuple[Ints, int]:
    """Token ids of the text by falling frequency, and how many different ones there are."""
    text, _ = read_text(path)
    found = _WORD.findall(text.lower()) if models.tokens == "words" else list(" ".join(text.split()))
    names, ids, counts = np.unique(np.array(found, dtype=np.str_), return_inverse=True, return_counts=True)
    if len(found) < 100 or len(names) < 2:
        raise refuse(
            path, f"{len(found)} {models.tokens}, {len(names)} of them different; needed: 100, and 2 different"
        )
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(names))
    tokens: Ints = np.minimum(rank[ids.ravel()], models.vocabulary - 1)
    return tokens, min(len(names), models.vocabulary)


def _grams(tokens: Ints, size: int, longest: int) -> tuple[list[Ints], list[Ints]]:
    """By length: the number of the context before every place of the ring; and each context's next shorter one."""
    grams, parents = [np.zeros(len(tokens), np.int64)], []
    before = np.roll(tokens, 1)
    for _ in range(longest):
        _, first, gram = np.unique(np.roll(grams[-1], 1) * size + before, return_index=True, return_inverse=True)
        parents.append(grams[-1][first])
        grams.append(gram.ravel())
    return grams, parents


def _next_contexts(tokens: Ints, grams: list[Ints], parents: list[Ints], counts: list[int], size: int) -> Ints:
    """The longest known context that ends in (context, token): the child where the text has it, else the parent's."""
    offsets = np.cumsum([0, *counts])
    level = np.zeros((1, size), np.int64)
    levels = []
    for length, gram in enumerate(grams):
        level = level[parents[length - 1]] if length else level
        if length + 1 < len(grams):
            level[gram, tokens] = offsets[length + 1] + np.roll(grams[length + 1], -1)
        levels.append(level)
    return np.concatenate(levels)


def _at_temperature(rows: Floats, temperature: float) -> Floats:
    if temperature == 1.0:
        return rows
    sharpened = (rows / rows.max(axis=1, keepdims=True)) ** (1.0 / temperature)
    scaled: Floats = sharpened / sharpened.sum(axis=1, keepdims=True)
    return scaled
