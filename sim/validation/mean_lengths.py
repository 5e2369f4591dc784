"""Means at one K predicted from those at another, and of a tree from those of a chain: advisory, for any folder.

Needs no recorded sequences: `acceptance/*acceptance_length*.csv` (means by K), and rows of `published/*.csv` that state
a mean, whether a time was measured or not. The mean at the K nearest to `LEVEL_AT` is known, the others are predicted
with the law of a shipped profile; of a tree, that of the chain nearest to it in depth.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.calibration.tables import read_table
from sim.errors import SimError
from sim.theory.tokens import alpha_from_tokens, expected_tokens
from sim.validation import stated_method
from sim.validation.acceptance import LEVEL_AT
from sim.validation.carried import carried, tree_from_chain
from sim.validation.cases import ADVISORY_TRUST
from sim.validation.documented import documented
from sim.validation.published import PublishedRow, read_published
from sim.validation.scores import Score
from sim.validation.suite_page import page, reasons, score_table, summary_table

_MEANS = ("model", "method", "num_speculative_tokens", "mean_acceptance_length")
_VARIANTS = ("rejection_sampling", "thinking")
#: Notes may state the mean at a further K: `AL K=3 2.65`.
_IN_NOTES = re.compile(r"\bAL K=(\d+) ([\d.]+)")


class Mean(NamedTuple):
    """A stated mean.

    Attributes:
        name: of the row; "" for one that only its notes state, which is never scored.
        config: number of drafts, and the tree where there is one.
    """

    name: str
    config: Mapping[str, Any]
    tokens: float

    @property
    def k(self) -> int:
        """Drafts."""
        return int(self.config["num_speculative_tokens"])

    @property
    def is_tree(self) -> bool:
        """Whether a tree is drafted."""
        return "tree" in self.config


class Means(NamedTuple):
    """Means of one drafter on one text.

    Attributes:
        group: heading.
        about: what it is in one line.
        method, dataset: ours, and as stated.
    """

    group: str
    about: str
    method: str
    dataset: str
    means: tuple[Mean, ...]


class MeanScores(NamedTuple):
    """Tokens per step, beside an i.i.d. guess as the naive one; and means that could not be predicted, and why."""

    scores: tuple[Score, ...]
    not_run: tuple[tuple[str, str], ...]


def mean_scores(folder: Path) -> MeanScores:
    """Everything that a folder's means allow to be predicted.

    Raises:
        SimError: a table is malformed.
    """
    groups = [*_of_tables(folder), *_of_rows(read_published(folder))]
    scores: list[Score] = []
    not_run: list[tuple[str, str]] = []
    for means in groups:
        for mean, predict in (*_over_k(means), *_of_trees(means)):
            try:
                scores.append(predict())
            except SimError as error:
                not_run.append((mean.name, str(error)))
    return MeanScores(tuple(scores), tuple(not_run))


def _of_tables(folder: Path) -> Iterator[Means]:
    there = folder / "acceptance"
    for path in sorted((there if there.is_dir() else folder).glob("*acceptance_length*.csv")):
        table = read_table(path, _MEANS, _MEANS[2:])
        keys = [name for name in (*_MEANS[:2], *_VARIANTS) if name in table.columns]
        for key, rows in table.groups(keys):
            ks, tokens = (rows.numbers(name).tolist() for name in _MEANS[2:])
            means = (
                Mean(f"{' '.join(key)} K={k:g}", {"num_speculative_tokens": round(k)}, mean)
                for k, mean in zip(ks, tokens, strict=True)
            )
            yield Means(f"means by K: {path.name}", " ".join(key), key[1], "", tuple(means))


def _of_rows(rows: Sequence[PublishedRow]) -> Iterator[Means]:
    groups: dict[tuple[str, ...], list[Mean]] = defaultdict(list)
    for row in rows:
        if row.tokens_per_step and row.trust >= ADVISORY_TRUST and not row.simulated:
            for key, mean in _of_row(row, row.tokens_per_step):
                if mean.config not in [other.config for other in groups[key]]:  # the same at every load
                    groups[key].append(mean)
    for (source, model, name, method, dataset, variant), means in groups.items():
        about = ", ".join(filter(None, (model, name, dataset, variant)))
        yield Means(f"means by K: {source}", about, method, dataset, tuple(means))


def _of_row(row: PublishedRow, tokens: float) -> Iterator[tuple[tuple[str, ...], Mean]]:
    """A row's mean and those of its notes, with what they belong to; nothing where its shape is not known."""
    known = documented(row.engine, row.method, row.k_or_tree)
    match = re.match(r"match \d+", row.k_or_tree)
    try:
        method = stated_method.method(row.method)
        config = stated_method.drafts(known.settings if known else row.k_or_tree, row.notes)
    except SimError:
        return
    if "num_speculative_tokens" in config:
        variant = ", ".join(filter(None, (match and match[0], row.temperature and f"T = {row.temperature}")))
        key = (row.source, row.target_model, row.method, method, row.dataset, variant)
        yield key, Mean(row.case_id, config, tokens)
        for k, mean in _IN_NOTES.findall(row.notes):
            yield key, Mean("", {"num_speculative_tokens": int(k)}, float(mean))


#: A mean that is to be predicted, and how.
Pending = tuple[Mean, Callable[[], Score]]


def _over_k(means: Means) -> Iterator[Pending]:
    chains = [mean for mean in means.means if not mean.is_tree]
    if len({mean.k for mean in chains}) > 1:
        known = min(chains, key=lambda mean: (abs(mean.k - LEVEL_AT), mean.k))
        yield from ((mean, partial(_chain, means, known, mean)) for mean in chains if mean is not known and mean.name)


def _chain(means: Means, known: Mean, mean: Mean) -> Score:
    predicted = carried(known.tokens, known.k, mean.k, means.method, means.dataset)
    return _score(means, mean, predicted, _iid(known, mean.k), f"from {known.tokens:g} at K = {known.k}")


def _of_trees(means: Means) -> Iterator[Pending]:
    chains = [mean for mean in means.means if not mean.is_tree]
    for mean in means.means:
        if mean.is_tree and mean.name and chains:
            depth = stated_method.depth(mean.config)
            known = min(chains, key=lambda one: (abs(one.k - depth), one.k))
            yield mean, partial(_tree, means, known, mean, depth)


def _tree(means: Means, known: Mean, mean: Mean, depth: int) -> Score:
    predicted = tree_from_chain(known.tokens, known.k, mean.config)
    remark = f"tree of {mean.k} nodes, {depth} deep, from {known.tokens:g} of the chain of {known.k}"
    return _score(means, mean, predicted, _iid(known, depth), remark)


def _iid(known: Mean, k: int) -> float | None:
    """The same rate at every draft, and a chain in the place of a tree."""
    if not 1 < known.tokens < known.k + 1:
        return None
    return float(np.asarray(expected_tokens(alpha_from_tokens(known.tokens, known.k), k)))


def _score(means: Means, mean: Mean, predicted: float, naive: float | None, remark: str) -> Score:
    load = "tree" if mean.is_tree else f"K = {mean.k}"
    return Score(
        mean.name, means.group, "tree" if mean.is_tree else "chain", load, predicted, mean.tokens, naive=naive,
        remarks=f"{means.about}: {remark}",
    )  # fmt: skip


_PAGE = """## Means at other K, and of trees

Advisory: no sequences are needed, only means. The mean at the K nearest to {at} is known, those at other K are
predicted with the law of a shipped profile at that level; the mean of a tree from the chain nearest to it in depth,
whose further guesses share what the best one leaves as in `scenarios/methods/eagle-tree.yaml`. **naive**: the same rate
at every draft, and a chain in the place of a tree. Tokens per step, bonus token included; means of block drafters are
not separable in K and not predicted.
"""


def render_means(means: MeanScores) -> str:
    """A section of the page `acceptance`; empty where a folder has no such means."""
    missing = "### Not predicted\n\n" + reasons(means.not_run) if means.not_run else ""
    if not means.scores:
        return page(missing.removeprefix("#")) if missing else ""
    groups: dict[str, list[Score]] = {}
    for score in means.scores:
        groups.setdefault(f"{score.group}: {score.quantity}", []).append(score)
    tables = [f"### {name}\n\n{score_table(scores)}" for name, scores in groups.items()]
    return page(_PAGE.format(at=f"K = {LEVEL_AT}"), summary_table(list(groups.items())), *tables, missing)
