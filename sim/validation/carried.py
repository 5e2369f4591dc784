"""Tokens per step at one K from those at another: the same text and drafter, the law of a shipped profile.

Deep drafts depend on the text as well as on the level, so this is a prediction with an error of its own; the page
`acceptance` shows it wherever a folder states means at several K.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from sim.acceptance.ngram_markov import NgramMarkov
from sim.acceptance.per_rank import PerRank
from sim.acceptance.profiles import profile_names
from sim.acceptance.regime import Level, Regime
from sim.catalogue import normalised
from sim.errors import SimError
from sim.speculation.known_trees import known_tree
from sim.theory.draft_trees import FixedShape, GrownShape, TreeShape
from sim.theory.tokens import alpha_from_tokens
from sim.validation.as_published import UnrunnableError
from sim.validation.ngram_mean import ngram_at

#: The profile for text of no profile of its own.
_CHAT = "sharegpt"
#: Drafters whose drafts of one step are made at once, for the K that they were trained for.
_BLOCKS = ("dflash", "dspark")

#: Of what the best guess leaves, how much the second, third, ... takes; what the drafter of a grown tree knows of a
#: position. Both as in `scenarios/methods/eagle-tree.yaml`: a guess, made before it was compared with anything.
_FURTHER_RANKS = (0.41, 0.15, 0.07, 0.055, 0.037, 0.026, 0.018, 0.015, 0.011)
_CONFIDENCE_SPREAD = 0.2


def carried(tokens: float, from_k: int, to_k: int, method: str, dataset: str) -> float:
    """Mean tokens per step at `to_k`, bonus token included, of a drafter that has `tokens` at `from_k`.

    Raises:
        UnrunnableError: drafts of this method at one K say nothing about those at another, or no level fits.
    """
    if method in _BLOCKS:
        raise UnrunnableError("a block drafter's acceptance at one length says nothing about another")
    try:
        return _carried(round(tokens, 6), from_k, to_k, method == "ngram", normalised(dataset))
    except (ValidationError, SimError, ValueError) as error:
        raise UnrunnableError(f"not carried over from K = {from_k} to {to_k}: {_gist(error)}") from error


@lru_cache(maxsize=1024)
def _carried(tokens: float, from_k: int, to_k: int, lookup: bool, dataset: str) -> float:
    if lookup:
        law = NgramMarkov.model_validate(ngram_at(tokens, from_k, dataset))
        return 1.0 + float(law.survival(to_k).sum())
    profile = dataset if dataset in profile_names("regime") else _CHAT
    regime = Regime(profile=profile, level=Level(tokens_per_step=tokens, num_speculative_tokens=from_k))
    return 1.0 + float(regime.survival(to_k).sum())


def tree_from_chain(tokens: float, chain_k: int, config: Mapping[str, Any]) -> float:
    """Mean tokens per step of a tree, where a chain of `chain_k` drafts of the same drafter has `tokens`.

    The chain's rate at every depth; further guesses share what it leaves.

    Args:
        tokens: of the chain, bonus token included.
        chain_k: its drafts.
        config: `num_speculative_tokens` and `tree`, named or dynamic.

    Raises:
        UnrunnableError: no rate gives the chain's mean, or the tree has more nodes than are grown.
    """
    try:
        best = alpha_from_tokens(tokens, chain_k)
        rates = [best, *((1 - best) * share for share in _FURTHER_RANKS)]
        nodes, (shape, spread) = int(config["num_speculative_tokens"]), _shape_of(config)
        model = PerRank(rates=tuple(rates), confidence_spread=min(spread, best, 1 - best, best - rates[1]))
        return 1.0 + float(model.tree_survival(shape, nodes).sum())
    except (ValidationError, SimError, ValueError) as error:
        raise UnrunnableError(f"not carried over from a chain of {chain_k} to the tree: {_gist(error)}") from error


def _gist(error: Exception) -> str:
    """The one thing that is wrong."""
    return str(error.errors()[0]["msg"] if isinstance(error, ValidationError) else error).splitlines()[0]


def _shape_of(config: Mapping[str, Any]) -> tuple[TreeShape, float]:
    """A tree, and how much its drafter follows what it knows."""
    tree = config["tree"]
    if tree["kind"] == "named":
        return FixedShape(known_tree(tree["name"])), 0.0
    return GrownShape(int(config["num_speculative_tokens"]), tree["depth"], tree["top_k"]), _CONFIDENCE_SPREAD
