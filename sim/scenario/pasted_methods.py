"""Which method a pasted config means where it does not say `method:` in our words. Used by `pasted.py`.

vLLM infers it from the drafter's name (`vllm/config/speculative.py`). SGLang names an algorithm: `server_args.py`,
`speculative_algorithm`, whose NEXTN is its EAGLE worker on the target's own multi-token-prediction layers.
"""

from collections.abc import Mapping

from sim.scenario.suggestions import did_you_mean, found, one_of

ALGORITHM, DRAFTER = "speculative_algorithm", "speculative_draft_model_path"
#: SGLang's algorithm -> our method.
ALGORITHMS = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
    "DFLASH": "dflash",
}
#: Words in the names of drafters -> method, the first that fits.
_NAMED = {"eagle3": "eagle3", "eagle": "eagle", "medusa": "medusa", "dflash": "dflash", "ngram": "ngram", "mtp": "mtp"}


def method_of_drafter(model: str) -> str:
    """What vLLM takes a drafter of this name for."""
    return next((method for word, method in _NAMED.items() if word in model.lower()), "draft_model")


def complaint(values: Mapping[str, object]) -> str:
    """What is wrong with the algorithm of a config, or ""."""
    stated = values[ALGORITHM]
    method = ALGORITHMS.get(str(stated).upper())
    if method is None:
        return f"found {found(stated)}; {one_of(ALGORITHMS)}{did_you_mean(str(stated).upper(), ALGORITHMS)}"
    if values.get("method") not in (None, method):
        return f"means method {method}, which contradicts method {values['method']}; allowed: one of them"
    return ""
