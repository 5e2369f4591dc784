"""vLLM's keys that choose how drafts are verified, as a rule of `verification:`. Plain values in, plain values out."""

from collections.abc import Mapping

from sim.scenario.suggestions import did_you_mean, found, one_of

METHOD, DRAFTS = "rejection_sample_method", "draft_sample_method"
#: vLLM's `RejectionSampleMethod`; `strict` and `probabilistic` are those of releases before `standard` and `block`.
METHODS = ("standard", "synthetic", "block", "strict", "probabilistic")
#: vLLM's `DraftSampleMethod`; `gumbel` is the earlier name of `probabilistic`.
SAMPLED = ("greedy", "probabilistic", "gumbel")


def complaints(values: Mapping[str, object]) -> dict[str, str]:
    """What is wrong with the values of the two keys, by key."""
    allowed = {METHOD: METHODS, DRAFTS: SAMPLED}
    return {
        key: f"found {found(value)}; {one_of(allowed[key])}{did_you_mean(str(value), allowed[key])}"
        for key, value in values.items()
        if value is not None and value not in allowed[key]
    }


def rule_of(values: Mapping[str, object], has_probabilities: bool) -> str | None:
    """The kind of rule that vLLM applies above temperature 0; None where the keys say nothing or `synthetic`.

    Args:
        values: of the two keys, without complaints.
        has_probabilities: whether the method drafts from a distribution; a look-up has none to be judged by.
    """
    method, drafts = values.get(METHOD), values.get(DRAFTS)
    if method == "synthetic" or (method is None and drafts is None):
        return None
    if method == "strict":
        return "exact_match"
    sampled = drafts in SAMPLED[1:] or (drafts is None and method == "probabilistic")
    if not sampled or not has_probabilities:
        return "greedy_draft"  # of greedy drafts, block verification accepts no more
    return "block" if method == "block" else "rejection_sampling"


def remark(values: Mapping[str, object], key: str, kind: str | None) -> str:
    """What a reader may not expect of a key's value, or "".

    Args:
        values: of the two keys, and under `acceptance` whether synthetic rates are given.
        key: the one to remark on.
        kind: the rule they mean.
    """
    if key == METHOD and values[key] == "synthetic" and not values["acceptance"]:
        return "no synthetic rates are given: the arm's acceptance stands"
    if key == METHOD and values[key] == "block" and kind == "greedy_draft":
        return "taken as greedy_draft: without draft_sample_method: probabilistic, judging blocks accepts no more"
    return ""
