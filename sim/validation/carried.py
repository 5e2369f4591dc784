"""Tokens per step at one K from those at another: the same text and drafter, the law of a shipped profile.

Deep drafts depend on the text as well as on the level, so this is a prediction with an error of its own; the page
`acceptance` shows it wherever a folder states means at several K.
"""

from functools import lru_cache

from pydantic import ValidationError

from sim.acceptance.ngram_markov import NgramMarkov
from sim.acceptance.profiles import profile_names
from sim.acceptance.regime import Level, Regime
from sim.catalogue import normalised
from sim.errors import SimError
from sim.validation.as_published import UnrunnableError
from sim.validation.ngram_mean import ngram_at

#: The profile for text of no profile of its own.
_CHAT = "sharegpt"


def carried(tokens: float, from_k: int, to_k: int, method: str, dataset: str) -> float:
    """Mean tokens per step at `to_k`, bonus token included, of a drafter that has `tokens` at `from_k`.

    Raises:
        UnrunnableError: drafts of this method at one K say nothing about those at another, or no level fits.
    """
    if method == "dflash":
        raise UnrunnableError("a block drafter's acceptance at one length says nothing about another")
    try:
        return _carried(round(tokens, 6), from_k, to_k, method == "ngram", normalised(dataset))
    except (ValidationError, SimError, ValueError) as error:
        raise UnrunnableError(f"{tokens:g} tokens at K = {from_k} cannot be carried over to K = {to_k}") from error


@lru_cache(maxsize=1024)
def _carried(tokens: float, from_k: int, to_k: int, lookup: bool, dataset: str) -> float:
    if lookup:
        law = NgramMarkov.model_validate(ngram_at(tokens, from_k, dataset))
        return 1.0 + float(law.survival(to_k).sum())
    profile = dataset if dataset in profile_names("regime") else _CHAT
    regime = Regime(profile=profile, level=Level(tokens_per_step=tokens, num_speculative_tokens=from_k))
    return 1.0 + float(regime.survival(to_k).sum())
