"""Arms against one another, against their acceptance and against what the context can hold."""

from collections.abc import Iterator

from sim.acceptance.base import MAX_DRAFT_TOKENS, AcceptanceModel
from sim.acceptance.stream_replay import StreamReplay
from sim.errors import ScenarioError
from sim.models.model import Model
from sim.scenario.document import Path, dotted
from sim.scenario.findings import Context, Finding, note, reads
from sim.scenario.k_checks import acceptance_models, possible_k
from sim.scenario.suggestions import did_you_mean, one_of
from sim.speculation.base import SpeculationMethod
from sim.token_streams.streams import read_streams


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
        k = arm.speculative_config.max_accepted_tokens
        for path, model in acceptance_models(name, arm):
            limit = _limit_of(model, context)
            if limit is not None and limit < k:
                what = (
                    "num_speculative_tokens" if arm.speculative_config.tree_shape is None else "the depth of the tree"
                )
                yield Finding(path, f"covers {limit} draft tokens; allowed: at least {what} = {k}")


def _limit_of(model: AcceptanceModel, context: Context) -> int | None:
    try:
        return model.located(context.base_dir).max_supported_draft_tokens()
    except ScenarioError:  # its file: see _acceptance_files
        return None


@reads("arms", "engine", "hardware")
def _acceptance_describes_the_tree(context: Context) -> Iterator[Finding]:
    for name, arm in context.scenario.arms.items():
        config = arm.speculative_config
        if config.tree_shape is None:
            continue
        sizes = sorted({config.max_draft_tokens, *possible_k(arm, context)})
        for path, model in acceptance_models(name, arm):
            limit = _limit_of(model, context)
            try:
                for size in sizes if limit is None or limit >= config.max_accepted_tokens else ():
                    model.check_tree(config.tree_shape, size)
            except ScenarioError as error:
                yield Finding(path, str(error))


@reads("arms")
def _acceptance_files(context: Context) -> Iterator[Finding]:
    for name, arm in context.scenario.arms.items():
        for path, model in acceptance_models(name, arm):
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
        elif arm.rule.judges_blocks and config.tree_shape is not None:
            message = f"{arm.rule.kind} judges the drafts of a chain together; {config.method} drafts a tree"
            yield Finding(("arms", name, "verification"), message)


@reads("arms", "model")
def _vocabularies(context: Context) -> Iterator[Finding]:
    """VLLM refuses to start (`SpeculativeConfig.verify_equal_vocab_size_if_draft_model`)."""
    for name, arm in context.scenario.arms.items():
        method = arm.speculative_config
        drafter = _drafter(context, method) if context.model and method.needs_equal_vocabulary else None
        if drafter and context.model and drafter.vocab != context.model.vocab:
            message = (
                f"{drafter.name} has a vocabulary of {drafter.vocab:,} tokens and {context.model.name} of "
                f"{context.model.vocab:,}: engines refuse the pair; take a draft model with the target's tokenizer, or "
                "set use_heterogeneous_vocab: true and state an acceptance measured that way"
            )
            yield Finding(("arms", name, "speculative_config", "model"), message)


@reads("arms", "model")
def _drafter_exists(context: Context) -> Iterator[Finding]:
    """Heads or layers that the target does not have, draft models that nobody knows."""
    for name, arm in context.scenario.arms.items():
        method = arm.speculative_config
        if context.model:
            try:
                method.drafter_model(context.model, context.base_dir)
            except ScenarioError as error:
                yield Finding(("arms", name, "speculative_config"), str(error))


def _drafter(context: Context, method: SpeculationMethod) -> Model | None:
    try:
        return method.drafter_model(context.model, context.base_dir) if context.model else None
    except ScenarioError:
        return None


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
        method, config = arm.speculative_config, ("arms", name, "speculative_config")
        k, key_of_k = method.max_draft_tokens, (*config, *_key_of_k(method))
        if method.max_accepted_tokens > MAX_DRAFT_TOKENS:
            yield Finding(key_of_k, f"found {method.max_accepted_tokens}; allowed: at most {MAX_DRAFT_TOKENS}")
        elif context.max_model_len is not None and k >= context.max_model_len:
            message = f"found {k}; allowed: below engine.max_model_len = {context.max_model_len}"
            yield Finding(key_of_k, message)
        draft_tp = getattr(method, "draft_tensor_parallel_size", None)
        if draft_tp not in (None, 1, tensor_parallel):
            message = f"found {draft_tp}; allowed: 1 or engine.tensor_parallel_size = {tensor_parallel}"
            yield Finding((*config, "draft_tensor_parallel_size"), message)


def _key_of_k(method: SpeculationMethod) -> Path:
    return ("num_speculative_tokens",) if "num_speculative_tokens" in type(method).model_fields else ()


@reads("arms", "engine")
def _drafts_on_the_gpu(context: Context) -> Iterator[Finding]:
    """VLLM refuses this too (`VllmConfig`: asynchronous scheduling only with EAGLE, MTP and draft models)."""
    for name, arm in context.scenario.arms.items():
        if context.scenario.engine.filled().async_scheduling and arm.speculative_config.drafts_on_cpu:
            what = f"the drafts of {arm.speculative_config.method}"
            message = f"{what} are made on the CPU, which engine.async_scheduling does not wait for; drop one"
            yield Finding(("arms", name, "speculative_config", "method"), message)


@reads("arms", "sweep")
def _lookup_acts(context: Context) -> Iterator[Finding]:
    """Settings of a look-up in tokens, and acceptance computed from tokens, need one another."""
    for name, arm in context.scenario.arms.items():
        method, models = arm.speculative_config, dict(acceptance_models(name, arm))
        replays = {path for path, model in models.items() if isinstance(model, StreamReplay)}
        if arm.speculates and method.proposer is None:
            for path in sorted(replays, key=str):
                message = f"{method.method} does not draft from tokens; allowed: with method ngram, suffix or rest"
                yield Finding((*path, "kind"), f"found 'stream_replay': {message}")
        elif not replays:
            yield from _idle_lookup_keys(context, name, method)


@reads("arms")
def _streams_can_be_read(context: Context) -> Iterator[Finding]:
    for name, arm in context.scenario.arms.items():
        proposer = arm.speculative_config.located(context.base_dir).proposer
        for path, model in acceptance_models(name, arm):
            if not isinstance(model, StreamReplay) or proposer is None:
                continue
            try:
                remark = proposer.check(read_streams(context.base_dir / model.path))
            except ScenarioError as error:
                for problem in error.problems:
                    place = f"{problem.where}: {problem.key}: ".replace(": : ", ": ") if problem.where else ""
                    yield Finding((*path, "path"), place + problem.message)
            else:
                if remark:
                    yield note((*path, "path"), f"no effect of {remark}")


def _idle_lookup_keys(context: Context, name: str, method: SpeculationMethod) -> Iterator[Finding]:
    """Look-up settings that were given, or are varied, though acceptance is stated and not computed."""
    reason = "no effect: only acceptance of kind stream_replay looks drafts up"
    for key in method.lookup_keys:
        path: Path = ("arms", name, "speculative_config", key)
        if dotted(path) in context.scenario.sweep.vary:
            yield note(("sweep", "vary", dotted(path)), reason)
        elif getattr(method, key) != type(method).model_fields[key].default:
            yield note(path, reason)


@reads("arms", "engine")
def _trees_in_step(context: Context) -> Iterator[Finding]:
    """SGLang's overlap scheduler needs `speculative_eagle_topk` 1; vLLM has no Medusa with asynchronous scheduling."""
    for name, arm in context.scenario.arms.items():
        config = arm.speculative_config
        if context.scenario.engine.filled().async_scheduling and (
            config.tree_shape is not None or config.method == "medusa"
        ):
            what = "token trees are" if config.tree_shape is not None else "medusa is"
            message = f"{what} not known to work with engine.async_scheduling in any engine; drop one"
            yield Finding(("arms", name, "speculative_config"), message, at_key=True)
