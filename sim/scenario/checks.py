"""What no single value can tell: arms against acceptance, K against the context, the baseline, the engine's limits.

Each check is a generator of findings over a scenario whose single values are right; it names the sections it reads, so
that it is left out when one of them is broken and its conclusions would be made up.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath

from sim.acceptance.base import MAX_DRAFT_TOKENS, AcceptanceModel
from sim.errors import ScenarioError
from sim.hardware.gpu import Gpu
from sim.models.model import Model
from sim.scenario.arms import Arm
from sim.scenario.defaults import KV_CACHE_DTYPES
from sim.scenario.document import Path
from sim.scenario.engine import EngineArgs
from sim.scenario.schema import Scenario
from sim.scenario.suggestions import did_you_mean, found, one_of


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about one place of a scenario; an error unless `is_note`."""

    path: Path
    message: str
    is_note: bool = False
    at_key: bool = False


def note(path: Path, message: str) -> Finding:
    """A finding that does not stop the run."""
    return Finding(path, message, is_note=True)


@dataclass(frozen=True)
class Context:
    """A scenario with what its names stand for; None where the name stands for nothing."""

    scenario: Scenario
    base_dir: FilePath

    @cached_property
    def gpu(self) -> Gpu | None:
        """The GPU, overrides applied."""
        try:
            return self.scenario.hardware.load()
        except ScenarioError:
            return None

    @cached_property
    def model(self) -> Model | None:
        """The target model."""
        try:
            return self.scenario.model.load(self.base_dir)
        except ScenarioError:
            return None

    @cached_property
    def engine(self) -> EngineArgs | None:
        """Engine arguments with all defaults filled in."""
        if self.gpu is None:
            return None
        return self.scenario.engine.resolved(self.gpu, self.model.max_model_len if self.model else None)

    @property
    def max_model_len(self) -> int | None:
        """Longest context, if it can be known."""
        return self.engine.max_model_len if self.engine else self.scenario.engine.max_model_len


Check = Callable[[Context], Iterator[Finding]]
_CHECKS: list[tuple[frozenset[str], Check]] = []


def reads(*sections: str) -> Callable[[Check], Check]:
    """Register a check that reads these top-level sections."""

    def register(check: Check) -> Check:
        _CHECKS.append((frozenset(sections), check))
        return check

    return register


def find(context: Context, broken: frozenset[str] = frozenset()) -> list[Finding]:
    """All findings of the checks that read no broken section."""
    return [finding for sections, check in _CHECKS if not sections & broken for finding in check(context)]


@reads("hardware")
def _gpu_is_known(context: Context) -> Iterator[Finding]:
    try:
        context.scenario.hardware.load()
    except ScenarioError as error:
        yield from (Finding(("hardware", "gpu"), problem.message) for problem in error.problems)


@reads("model")
def _model_is_known(context: Context) -> Iterator[Finding]:
    try:
        context.scenario.model.load(context.base_dir)
    except ScenarioError as error:
        yield from (Finding(("model", "target"), str(problem)) for problem in error.problems)


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
            for key in ("acceptance", "class_acceptance"):
                if getattr(arm, key):
                    yield Finding(("arms", name, key), "has no effect: this arm does not speculate", at_key=True)
        elif arm.acceptance is None:
            message = "missing; a speculative arm must state its acceptance, such as {kind: iid, rate: 0.7}"
            yield Finding(("arms", name, "acceptance"), message)


@reads("arms")
def _acceptance_reaches_k(context: Context) -> Iterator[Finding]:
    for name, arm in context.scenario.arms.items():
        for path, limit in _acceptance_limits(name, arm):
            if limit < arm.speculative_config.max_draft_tokens:
                k = arm.speculative_config.max_draft_tokens
                yield Finding(path, f"covers {limit} draft tokens; allowed: at least num_speculative_tokens = {k}")


def _acceptance_limits(name: str, arm: Arm) -> Iterator[tuple[Path, int]]:
    models: dict[Path, AcceptanceModel | None] = {("arms", name, "acceptance"): arm.acceptance}
    models |= {("arms", name, "class_acceptance", key): model for key, model in arm.class_acceptance.items()}
    for path, model in models.items():
        limit = model.max_supported_draft_tokens() if model is not None else None
        if limit is not None:
            yield path, limit


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


@reads("engine", "hardware", "model")
def _engine_limits(context: Context) -> Iterator[Finding]:
    """The refusals of vLLM's `SchedulerConfig`."""
    engine, stated = context.engine, context.scenario.engine
    if engine is None:
        return
    tokens, seqs, length = engine.max_num_batched_tokens, engine.max_num_seqs, engine.max_model_len
    if tokens is None or seqs is None or length is None:
        return
    if tokens < seqs:
        key = "max_num_batched_tokens" if stated.max_num_batched_tokens else "max_num_seqs"
        yield Finding(("engine", key), f"max_num_batched_tokens = {tokens} is below max_num_seqs = {seqs}")
    if tokens < length and not engine.enable_chunked_prefill:
        message = f"found {tokens}; allowed without chunked prefill: at least max_model_len = {length}"
        yield Finding(("engine", "max_num_batched_tokens"), message)
    if engine.long_prefill_token_threshold > length:
        message = f"found {engine.long_prefill_token_threshold}; allowed: at most max_model_len = {length}"
        yield Finding(("engine", "long_prefill_token_threshold"), message)
    if stated.max_num_scheduled_tokens and stated.max_num_scheduled_tokens > tokens:
        message = f"found {stated.max_num_scheduled_tokens}; allowed: at most max_num_batched_tokens = {tokens}"
        yield Finding(("engine", "max_num_scheduled_tokens"), message)


@reads("engine", "model")
def _dtypes_agree(context: Context) -> Iterator[Finding]:
    engine, model = context.scenario.engine, context.scenario.model
    kv = KV_CACHE_DTYPES.get(engine.kv_cache_dtype)
    if kv is not None and kv != model.kv_cache_dtype:
        message = f"found {found(engine.kv_cache_dtype)}; contradicts model.kv_cache_dtype = {model.kv_cache_dtype}"
        yield Finding(("engine", "kv_cache_dtype"), message)
    weights = {"half": "fp16", "float16": "fp16", "bfloat16": "bf16"}.get(engine.dtype)
    if weights is not None and model.weight_dtype in ("bf16", "fp16") and weights != model.weight_dtype:
        message = f"found {found(engine.dtype)}; contradicts model.weight_dtype = {model.weight_dtype}"
        yield Finding(("engine", "dtype"), message)
    elif weights is not None:
        yield note(("engine", "dtype"), "accepted, no effect: 16-bit formats cost the same")


@reads("slo")
def _slo_has_a_bound(context: Context) -> Iterator[Finding]:
    slo = context.scenario.slo
    if slo is not None and slo.ttft is None and slo.tpot is None and slo.e2el is None:
        yield Finding(("slo",), "states no bound; allowed: at least one of ttft, tpot, e2el (ms)", at_key=True)


@reads("slo", "sweep", "arms")
def _breakeven(context: Context) -> Iterator[Finding]:
    sweep, path = context.scenario.sweep, ("sweep", "breakeven")
    if sweep.breakeven is None:
        return
    if not sweep.vary:
        yield note(path, "no effect: sweep.vary is empty")
    if "request_goodput" in sweep.breakeven.objectives and context.scenario.slo is None:
        index = sweep.breakeven.objectives.index("request_goodput")
        yield Finding((*path, "objectives", index), "request_goodput needs an `slo`")
