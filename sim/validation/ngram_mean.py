"""Prompt lookup of which only a mean is known: a shipped profile with its odds of a hit moved until the mean is met.

A lookup drafts nothing where it finds nothing, so a mean near 1 is a few steps with drafts, not many bad drafts.
"""

import math
from functools import lru_cache
from typing import Any

from sim.acceptance.base import MAX_DRAFT_TOKENS
from sim.acceptance.ngram_markov import NgramMarkov, NgramParameters
from sim.acceptance.profiles import load_profile, profile_names
from sim.catalogue import normalised
from sim.theory import bisect

#: The profile for text of no profile of its own.
_CHAT = "sharegpt"
#: Largest shift of the log odds, and steps of the search for it.
_MOST, _STEPS = 9.0, 24


def ngram_at(tokens_per_step: float, num_drafts: int, dataset: str) -> dict[str, Any]:
    """`acceptance` with this mean at this K, bonus token included; nearest to it where none has it exactly."""
    name = normalised(dataset)
    return _at(tokens_per_step, num_drafts, name if name in profile_names("ngram") else _CHAT)


@lru_cache(maxsize=4096)
def _at(tokens_per_step: float, num_drafts: int, profile: str) -> dict[str, Any]:
    law = _as_deep_as_needed(NgramParameters.model_validate(load_profile("ngram", profile)["parameters"]))

    def gap(shift: float) -> float:
        survival = NgramMarkov(parameters=_shifted(law, shift)).survival(num_drafts)
        return float(survival.sum()) + 1.0 - tokens_per_step

    shift = -_MOST if gap(-_MOST) > 0 else _MOST if gap(_MOST) < 0 else bisect(gap, -_MOST, _MOST, _STEPS)
    return {"kind": "ngram_markov", "parameters": _shifted(law, shift).model_dump(mode="json")}


def _as_deep_as_needed(law: NgramParameters) -> NgramParameters:
    """Beyond the deepest recorded draft its rate of rescue goes on."""
    return law.model_copy(update={"rescue": (*law.rescue, *(MAX_DRAFT_TOKENS - 1 - len(law.rescue)) * law.rescue[-1:])})


def _shifted(law: NgramParameters, shift: float) -> NgramParameters:
    """Both probabilities of a hit with other odds, spread as widely."""
    shapes = {}
    for name, shape in (("enter", law.enter), ("stay", law.stay)):
        weight = shape.a + shape.b
        mean = 1 / (1 + shape.b / shape.a * math.exp(-shift))
        shapes[name] = shape.model_copy(update={"a": mean * weight, "b": (1 - mean) * weight})
    return law.model_copy(update=shapes)
