"""Arms against one another, against their acceptance and against what the context can hold."""

from collections.abc import Iterator

from sim.acceptance.base import MAX_DRAFT_TOKENS, AcceptanceModel
from sim.errors import ScenarioError
from sim.scenario.arms import Arm
from sim.scenario.document import Path
from sim.scenario.findings import Context, Finding, note, reads
from sim.scenario.suggestions import did_you_mean, one_of


@reads("arms")
def _baseline(context: Context) -> Iterator[Finding]:
    arms, baseline = context.scenario.arms, context.scenario.baseline
    if baseline == "":
        yield Finding(("arms",), "no arm without speculation to compare with; add `plain: {}`", at_key=True)
    elif baseline not in arms:
        yield Finding(("baseline",), f"found {baseline!r}; {one_of(arms)}{did_you_mean(baseline, arms)}")
    elif arms[baseline].speculates:
        yield note(("baseline",), f"the baseline {baseline} speculates itself: gains are relative to it")


@reads("arms")
def _acceptance(context: Context) -> Iterator[Finding]:
    for name, arm in context.scenario.arms.items():
        if not arm.speculates:
            for key in ("acceptance", "class_acceptance", "verification"):
                if getattr(arm, key):
                    yield Finding(("arms", name, key), "has no effect: this arm does not speculate", at_key=True)
        elif arm.acceptance is None:
            message = "missing; a speculative arm must state its acceptance, such as {kind: iid, rate: 0.7}"
            yield Finding(("arms", name, "acceptance"), message)


@reads("arms")
def _acceptance_reaches_k(context: Context) -> Iterator[Finding]:
    for name, arm in context.scenario.arms.items():
        for path, limit in _acceptance_limits(name, arm):
            if limit < arm.speculative_config.max_accepted_tokens:
                k = arm.speculative_config.max_accepted_tokens
                yield Finding(path, f"covers {limit} draft tokens; allowed: at least num_speculative_tokens = {k}")


def _acceptance_limits(name: str, arm: Arm) -> Iterator[tuple[Path, int]]:
    for path, model in _models(name, arm).items():
        limit = model.max_supported_draft_tokens()
        if limit is not None:
            yield path, limit


def _models(name: str, arm: Arm) -> dict[Path, AcceptanceModel]:
    """All acceptance models of an arm by their place."""
    models: dict[Path, AcceptanceModel | None] = {("arms", name, "acceptance"): arm.acceptance}
    models |= {("arms", name, "class_acceptance", key): model for key, model in arm.class_acceptance.items()}
    return {path: model for path, model in models.items() if model is not None}


@reads("arms")
def _acceptance_files(context: Context) -> Iterator[Finding]:
    for name, arm in context.scenario.arms.items():
        for path, model in _models(name, arm).items():
            try:
                model.located(context.base_dir).check_files()
            except ScenarioError as error:
                yield Finding(path, str(error))


@reads("arms")
def _rule_fits_the_drafts(context: Context) -> Iterator[Finding]:
    for name, arm in context.scenario.arms.items():
        config = arm.speculative_config
        if arm.speculates and arm.rule.needs_draft_probabilities and not config.drafts_have_probabilities:
            message = f"{arm.rule.kind} looks at the drafter's probabilities, but {config.method} has none"
            yield Finding(("arms", name, "verification"), f"{message}; its drafts are verified by greedy_draft")


@reads("arms", "workload")
def _classes_exist(context: Context) -> Iterator[Finding]:
    classes = [traffic.name for traffic in context.scenario.workload.classes]
    for name, arm in context.scenario.arms.items():
        for key in arm.class_acceptance:
            if key not in classes:
                allowed = one_of(classes) if classes else "workload.classes is empty"
                message = f"no such traffic class; {allowed}{did_you_mean(key, classes)}"
                yield Finding(("arms", name, "class_acceptance", key), message, at_key=True)


@reads("arms", "engine", "hardware", "model")
def _drafts_fit(context: Context) -> Iterator[Finding]:
    tensor_parallel = context.scenario.engine.tensor_parallel_size
    for name, arm in context.scenario.arms.items():
        k, config = arm.speculative_config.max_draft_tokens, ("arms", name, "speculative_config")
        if k > MAX_DRAFT_TOKENS:
            yield Finding((*config, "num_speculative_tokens"), f"found {k}; allowed: at most {MAX_DRAFT_TOKENS}")
        elif context.max_model_len is not None and k >= context.max_model_len:
            message = f"found {k}; allowed: below engine.max_model_len = {context.max_model_len}"
            yield Finding((*config, "num_speculative_tokens"), message)
        draft_tp = getattr(arm.speculative_config, "draft_tensor_parallel_size", None)
        if draft_tp not in (None, 1, tensor_parallel):
            message = f"found {draft_tp}; allowed: 1 or engine.tensor_parallel_size = {tensor_parallel}"
            yield Finding((*config, "draft_tensor_parallel_size"), message)


@reads("arms", "engine")
def _drafts_on_the_gpu(context: Context) -> Iterator[Finding]:
    """VLLM refuses this too (`VllmConfig`: asynchronous scheduling only with EAGLE, MTP and draft models)."""
    for name, arm in context.scenario.arms.items():
        if context.scenario.engine.async_scheduling and arm.speculative_config.method == "ngram":
            message = "n-gram drafts are made on the CPU, which engine.async_scheduling does not wait for; drop one"
            yield Finding(("arms", name, "speculative_config", "method"), message)
