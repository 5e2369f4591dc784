"""`catalogue`: published acceptance, with its source; and presets inferred from it, marked so."""

from collections.abc import Iterable
from functools import lru_cache
from importlib import resources
from typing import Annotated, Literal, Self

import numpy as np
import yaml
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from sim.acceptance.base import ACCEPTANCE, AcceptanceModel, Floats, Streams, Tape
from sim.acceptance.iid import Iid
from sim.acceptance.per_position import PerPosition
from sim.acceptance.regime import Level, Regime
from sim.acceptance.spread import RequestSpread
from sim.acceptance.table_by_k import DraftTokens, TableByK
from sim.catalogue import nearest_ids, normalised
from sim.spec import Seq, Spec
from sim.theory import alpha_from_tokens
from sim.units import Probability
from sim.workload.requests import RequestTable

#: Neighbouring entries of a published table wobble by about 0.1 token (rounding, few prompts). A table whose means must
#: move further than this to become unconditional rates is refused; 0.12 is the most that a shipped one moves.
WOBBLE_TOKENS = 0.15
_SWEEPS, _CONVERGED = 5000, 1e-9


def _whole_keys(value: object) -> object:
    return {int(key): mean for key, mean in value.items()} if isinstance(value, dict) else value


class Entry(Spec):
    """One published setting. Tokens per step include the bonus token."""

    id: str
    model: str
    method: str
    domain: str
    temperature: str
    rates: Seq[Probability] | None = None
    tokens_by_k: Annotated[dict[DraftTokens, float], BeforeValidator(_whole_keys)] | None = None
    separable: bool = Field(default=False, description="a longer draft has the same first drafts (autoregressive)")
    profile: str | None = Field(default=None, description="regime profile moved to the (one) mean")
    source: str
    note: str = ""
    inferred: bool = False

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.rates is None) == (self.tokens_by_k is None):
            raise ValueError("state either rates or tokens_by_k")
        return self

    @property
    def ks(self) -> tuple[int, ...]:
        """The K that were measured."""
        return tuple(sorted(self.tokens_by_k)) if self.tokens_by_k else (len(self.rates or ()),)

    def acceptance(self, spread: RequestSpread | None = None) -> AcceptanceModel:
        """The kind that says this entry.

        Raises:
            ValueError: `spread` is given for a kind that has none or its own, or the table wobbles too much.
        """
        model = self._model(spread)
        if spread is not None and not isinstance(model, PerPosition | Iid):
            raise ValueError(f"entry {self.id} is of kind `{model.kind}`, which takes no request_spread")
        return model

    def _model(self, spread: RequestSpread | None) -> AcceptanceModel:
        if self.rates is not None:
            return PerPosition(rates=self.rates, request_spread=spread)
        means = dict(self.tokens_by_k or {})
        k = max(means)
        if self.profile is not None:
            return Regime(profile=self.profile, level=Level(tokens_per_step=means[k], num_speculative_tokens=k))
        if len(means) == 1:
            return Iid(rate=alpha_from_tokens(means[k], k), request_spread=spread)
        if self.separable:
            return PerPosition(rates=marginal_from_means(means), request_spread=spread)
        return TableByK(tokens_per_step=means)


def marginal_from_means(tokens_by_k: dict[int, float]) -> tuple[float, ...]:
    """Unconditional rates of a drafter whose first drafts do not depend on K: s_K = m(K) - m(K-1), smoothed.

    Measured means wobble, so differences may rise or be negative. The rates are those whose means are nearest to the
    table (least squares) among rates that never increase; none of those means is off by more than WOBBLE_TOKENS.

    Raises:
        ValueError: the table has gaps, or would have to move further.
    """
    if sorted(tokens_by_k) != list(range(1, len(tokens_by_k) + 1)):
        raise ValueError("rates by position need a mean for every K from 1")
    rates, moved = _concave(tuple(tokens_by_k[k] - 1.0 for k in sorted(tokens_by_k)))
    if moved > WOBBLE_TOKENS:
        raise ValueError(f"means by K would have to move by {moved:.2f} tokens to be rates; use kind `table_by_k`")
    return rates


@lru_cache(maxsize=64)
def _concave(accepted: tuple[float, ...]) -> tuple[tuple[float, ...], float]:
    """Never-increasing rates whose running sums are nearest to `accepted`, and how far the worst sum is off.

    Such sums are a sum of ramps min(k, j) with weights >= 0, found by coordinate descent.
    """
    depths = np.arange(1, len(accepted) + 1)
    means, ramps = np.array(accepted), np.minimum.outer(depths, depths).astype(np.float64)
    weights = np.zeros(len(depths))
    for _ in range(_SWEEPS):
        before = weights.copy()
        for j, ramp in enumerate(ramps):
            weights[j] = max(0.0, weights[j] + ramp @ (means - weights @ ramps) / (ramp @ ramp))
        if np.abs(weights - before).max() < _CONVERGED:
            break
    rates = np.minimum(np.cumsum(weights[::-1])[::-1], 1.0)
    return tuple(rates.tolist()), float(np.abs(np.cumsum(rates) - means).max())


@lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """Every entry by id, in the order of the file."""
    text = resources.files("sim.acceptance").joinpath("data/catalogue.yaml").read_text(encoding="utf-8")
    return {entry["id"]: Entry.model_validate(entry) for entry in yaml.safe_load(text)}


def find_entry(name: str) -> Entry:
    """The entry of this id; case, `-`, `_` and `.` do not count.

    Raises:
        ValueError: there is none; the nearest ids are named.
    """
    found = [entry for entry in entries().values() if normalised(entry.id) == normalised(name)]
    if not found:
        near = nearest_ids(name, tuple(entries()))
        hint = f"did you mean {' or '.join(near)}?" if near else "`specsim catalog acceptance` lists them"
        raise ValueError(f"no published acceptance {name!r}; {hint}")
    return found[0]


@ACCEPTANCE.register
class CatalogueEntry(AcceptanceModel):
    """A published figure by its id; `specsim catalog acceptance` lists them with model, text, K and source.

    A mean at one K becomes one rate for all drafts; a table by K rates by position (autoregressive drafters, wobbles
    smoothed) or means by K (block drafters); an inferred preset a shipped profile moved to its level. All
    means include the bonus token. It is another model's or text's figure: measure your own before you decide.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "catalogue", "id": "llama-3.1-8b-eagle3-mtbench"},
                {"kind": "catalogue", "id": "kimi-k2.5-nvfp4-eagle3"},
                {"kind": "catalogue", "id": "preset-eagle3-chat"},
            ]
        }
    )

    kind: Literal["catalogue"] = "catalogue"
    id: str = Field(description="id of `specsim catalog acceptance`")
    request_spread: RequestSpread | None = Field(
        default=None, description="How rates vary over requests, for entries that give rates; published ones never say."
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        self.model()
        return self

    def entry(self) -> Entry:
        """The entry with its source."""
        return find_entry(self.id)

    def model(self) -> AcceptanceModel:
        """The kind that draws the tape."""
        return self.entry().acceptance(self.request_spread)

    def origin(self) -> str:
        """Where the figure comes from, and whether it is inferred."""
        entry = self.entry()
        return f"{entry.id}{' (inferred)' if entry.inferred else ''}"

    def max_supported_draft_tokens(self) -> int | None:
        """The largest K of the entry; none where one rate is all that is known."""
        return self.model().max_supported_draft_tokens()

    def missing_draft_tokens(self, num_draft_tokens: Iterable[int]) -> tuple[int, ...]:
        """Those K that the entry says nothing about: block drafters have a mean for some K only."""
        return self.model().missing_draft_tokens(num_draft_tokens)

    def survival(self, max_draft_tokens: int) -> Floats:
        """Exact, from the model."""
        return self.model().survival(max_draft_tokens)

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Draw the tape of the model."""
        return self.model().tape(requests, max_draft_tokens, streams)
