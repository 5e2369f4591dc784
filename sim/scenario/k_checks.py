"""K of an arm: whether its rule can be had, and whether its acceptance knows every K that may be asked for."""

from collections.abc import Iterator

from sim.acceptance.base import MAX_DRAFT_TOKENS, AcceptanceModel
from sim.scenario.arms import Arm
from sim.scenario.document import Path, dotted
from sim.scenario.findings import Context, Finding, note, reads

#: Batches that a rule for K is asked about where the engine's limit is not known.
MAX_NUM_SEQS = 1024


@reads("arms", "engine")
def _draft_length(context: Context) -> Iterator[Finding]:
    overlaps = bool(context.scenario.engine.filled().async_scheduling)
    for name, arm in context.scenario.arms.items():
        if arm.draft_length is not None:
            message = _wrong_rule(arm, overlaps)
            if message:
                yield Finding(("arms", name, "draft_length"), message, at_key=True)
            elif "at_zero" in arm.draft_length.model_fields_set and not arm.speculative_config.lookahead_tokens:
                message = f"no effect: {arm.speculative_config.method} has no drafter that falls behind"
                yield note(("arms", name, "draft_length", "at_zero"), message)


def _wrong_rule(arm: Arm, async_scheduling: bool) -> str:
    """Why an arm cannot have the K rule that it states; "" when it can."""
    config, rule = arm.speculative_config, arm.draft_length
    if rule is None:
        return ""
    if not arm.speculates:
        return "has no effect: this arm does not speculate"
    if config.draft_length.kind != "fixed":
        return "contradicts speculative_config.num_speculative_tokens_per_batch_size; allowed: one of them"
    if rule.needs_chain and config.max_accepted_tokens != config.max_draft_tokens:
        return f"{rule.kind} needs drafts that form a chain; {config.method} drafts a tree"
    if rule.needs_drafts and not config.drafts_have_probabilities:
        return f"{rule.kind} looks at the drafter's probabilities, of which {config.method} has none"
    if rule.needs_drafts and async_scheduling:
        return f"{rule.kind} ends drafts while they are made, which engine.async_scheduling does not wait for; drop one"
    return rule.wrong_for(config.max_draft_tokens)


@reads("arms", "engine", "hardware")
def _acceptance_of_every_k(context: Context) -> Iterator[Finding]:
    """Kinds that know single K only have to know all that the arm's rule picks."""
    for name, arm in context.scenario.arms.items():
        asked = possible_k(arm, context)
        for path, model in acceptance_models(name, arm):
            missing = ", ".join(map(str, model.missing_draft_tokens(asked)))
            if missing:
                message = f"says nothing of K = {missing}, which speculative_config asks for; add it"
                yield Finding(path, message)


@reads("arms", "sweep")
def _references_with_known_k(context: Context) -> Iterator[Finding]:
    """What `sweep.regret` does not compare with, because nobody measured it."""
    for name, arm in context.scenario.arms.items() if context.scenario.sweep.regret else ():
        if arm.k_rule.kind in ("fixed", "oracle") or not arm.speculates:
            continue
        every = range(1, arm.speculative_config.max_draft_tokens + 1)
        models = [model for _, model in acceptance_models(name, arm)]
        unknown = sorted({k for model in models for k in model.missing_draft_tokens(every)})
        if unknown:
            listed = ", ".join(map(str, unknown))
            message = (
                f"the acceptance of {name} says nothing of K = {listed}: neither they nor the oracle are references"
            )
            yield note(("sweep", "regret"), message)


@reads("arms", "sweep", "engine", "hardware")
def _smaller_k_of_block_drafters(context: Context) -> Iterator[Finding]:
    """Acceptance of one K stands in for another where the first drafts differ."""
    arms = context.scenario.arms
    for name, arm in arms.items():
        config = arm.speculative_config
        same = [one for one in arms.values() if one.acceptance == arm.acceptance and one.speculates]
        key = dotted(("arms", name, "speculative_config", "num_speculative_tokens"))
        several = {one.speculative_config.max_draft_tokens for one in same} | set(possible_k(arm, context))
        if not config.first_drafts_depend_on_k or (len(several) < 2 and key not in context.scenario.sweep.vary):
            continue
        for path, model in acceptance_models(name, arm):
            if not model.missing_draft_tokens([MAX_DRAFT_TOKENS + 1]):
                yield note(
                    path,
                    f"the first drafts of {config.method} depend on K, but this takes them to be the same at every K; "
                    "measure each K and state table_by_k",
                )


def possible_k(arm: Arm, context: Context) -> tuple[int, ...]:
    """Every K above 0 that the arm's rule may pick."""
    most = context.engine.max_num_seqs if context.engine else None
    return arm.k_rule.possible(arm.speculative_config.max_draft_tokens, most or MAX_NUM_SEQS)


def acceptance_models(name: str, arm: Arm) -> Iterator[tuple[Path, AcceptanceModel]]:
    """The acceptance of an arm and of its traffic classes, each with its place."""
    if arm.acceptance is not None:
        yield ("arms", name, "acceptance"), arm.acceptance
    for key, model in arm.class_acceptance.items():
        yield ("arms", name, "class_acceptance", key), model
