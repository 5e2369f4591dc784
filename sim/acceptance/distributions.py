"""`distributions`: acceptance that follows from the distributions of both models and the arm's verification rule."""

from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from sim.acceptance.base import ACCEPTANCE, AcceptanceModel, Floats, Streams, Tape
from sim.acceptance.language_model import LanguageModels
from sim.acceptance.positions import Positions
from sim.acceptance.text_process import ChanceDriven, TextProcess
from sim.acceptance.walk import walk
from sim.spec import Seq, Spec
from sim.verification.base import VerificationRule
from sim.verification.greedy_draft import GreedyDraft
from sim.workload.requests import RequestTable

_SUM_TOLERANCE = 1e-6
#: Contexts x tokens up to which the stationary chain is solved (a second or so).
_EXACT_CELLS = 1_000_000
#: Rows and tokens of the reference text that is walked where no exact survival is known.
_REFERENCE_ROWS, _REFERENCE_TOKENS = 2000, 500


class Pair(Spec):
    """The two distributions of one kind of token."""

    target: Seq[float] = Field(min_length=2, max_length=4096, description="p over the vocabulary, summing to 1")
    draft: Seq[float] = Field(min_length=2, max_length=4096, description="q over the same vocabulary")
    weight: float = Field(default=1.0, gt=0, description="share of the output positions, relative to the other pairs")

    @model_validator(mode="after")
    def _are_distributions(self) -> Self:
        if len(self.target) != len(self.draft):
            raise ValueError(f"target has {len(self.target)} tokens, draft {len(self.draft)}; they share a vocabulary")
        for name in ("target", "draft"):
            values = getattr(self, name)
            if min(values) < 0 or abs(sum(values) - 1.0) > _SUM_TOLERANCE:
                raise ValueError(f"{name} is no distribution: its sum is {sum(values):g}, its least {min(values):g}")
        return self


@ACCEPTANCE.register
class Distributions(AcceptanceModel):
    """Acceptance that follows from p, q and the rule under `verification:` of the arm, bonus token not counted.

    `pairs`: stated distributions, easy and hard ones with their shares; `stay` keeps a position's pair for the next,
    so that hard spots come in runs. `language_models`: two n-gram models counted from a text. Either way the output is
    written token by token, and a draft is accepted with the probability that the rule gives to its token. Under a
    lossy rule the text is what the rule would write if it judged every position, the bonus token's too.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "distributions", "pairs": [{"target": [0.5, 0.3, 0.2], "draft": [0.2, 0.6, 0.2]}]},
                {
                    "kind": "distributions",
                    "pairs": [
                        {"target": [0.9, 0.1], "draft": [0.8, 0.2], "weight": 3},
                        {"target": [0.5, 0.5], "draft": [0.1, 0.9]},
                    ],
                    "stay": 0.8,
                },
                {"kind": "distributions", "language_models": {"text": "text.txt", "target_order": 4, "draft_order": 2}},
            ]
        }
    )

    kind: Literal["distributions"] = "distributions"
    pairs: Seq[Pair] | None = Field(default=None, min_length=1, max_length=64, description="distributions as lists")
    stay: float = Field(default=0.0, ge=0, lt=1, description="chance that the next position keeps the pair of this one")
    language_models: LanguageModels | None = Field(default=None, description="models counted from a text")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.pairs is None) == (self.language_models is None):
            raise ValueError("needs either pairs or language_models")
        if self.stay and len(self.pairs or ()) < 2:
            raise ValueError("stay needs two or more pairs to stay with")
        return self

    def located(self, base_dir: Path) -> Self:
        """With the text's path made absolute, relative to the scenario's folder."""
        if self.language_models is None:
            return self
        text = str((base_dir / self.language_models.text).resolve())
        return self.model_copy(update={"language_models": self.language_models.model_copy(update={"text": text})})

    def under(self, rule: VerificationRule) -> AcceptanceModel:
        """These distributions judged by a rule."""
        return Judged(source=self, rule=rule)

    def check_files(self) -> None:
        """Read and count the text."""
        if self.language_models is not None:
            self.language_models.check()

    def process(self, rule: VerificationRule) -> TextProcess:
        """The text that the rule writes."""
        if self.language_models is not None:
            return self.language_models.process(rule)
        pairs = self.pairs or ()
        weights = np.array([pair.weight for pair in pairs]) / sum(pair.weight for pair in pairs)
        p, q = (_stacked([getattr(pair, name) for pair in pairs]) for name in ("target", "draft"))
        move = self.stay * np.eye(len(pairs)) + (1.0 - self.stay) * weights
        return ChanceDriven(rule.written(p, q), rule.kept(p, q), weights, move)

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """The tape of the default rule, see `under`."""
        return self.under(GreedyDraft()).tape(requests, max_draft_tokens, streams)

    def survival(self, max_draft_tokens: int) -> Floats:
        """Rates under the default rule, see `under`."""
        return self.under(GreedyDraft()).survival(max_draft_tokens)


class Judged(AcceptanceModel):
    """Distributions and the rule that judges their drafts: what an arm runs with."""

    kind: Literal["distributions"] = "distributions"
    source: Distributions
    rule: VerificationRule

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Write the text of every row and judge it; one uniform per position, as everywhere."""
        positions = Positions(requests, max_draft_tokens)
        process = _process(self.source, self.rule)
        return Tape(positions.trim(process.accepted(positions, streams, self.rule, max_draft_tokens)))

    def survival(self, max_draft_tokens: int) -> Floats:
        """Stationary rates of the text, to 1e-12; a walk through a million tokens where there is no closed chain.

        That is: under rules that judge blocks, in texts that run into loops (greedy ones), and for models of more than
        a million contexts x tokens. The walk uses the same random numbers in every scenario; the standard error of its
        tokens per step is below 0.005.
        """
        return _survival(self, max_draft_tokens)


@lru_cache(maxsize=8)
def _process(source: Distributions, rule: VerificationRule) -> TextProcess:
    return source.process(rule)


@lru_cache(maxsize=64)
def _survival(model: Judged, max_draft_tokens: int) -> Floats:
    process = _process(model.source, model.rule)
    if process.mixes and process.written.size <= _EXACT_CELLS and not model.rule.judges_blocks:
        return process.survival(max_draft_tokens)
    ones = np.ones(_REFERENCE_ROWS, np.int64)
    requests = RequestTable(0 * ones, ones, _REFERENCE_TOKENS * ones, 0 * ones, np.ones(_REFERENCE_ROWS, np.bool_))
    return walk(model.tape(requests, max_draft_tokens, Streams(0)), requests, max_draft_tokens).survival


def _stacked(rows: list[tuple[float, ...]]) -> Floats:
    """Rows of different vocabularies, padded with tokens that neither model knows, sums exactly 1."""
    table = np.zeros((len(rows), max(map(len, rows))))
    for index, row in enumerate(rows):
        table[index, : len(row)] = np.array(row) / sum(row)
    return table
