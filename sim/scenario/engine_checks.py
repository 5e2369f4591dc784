"""Names against the catalogues, and the refusals of vLLM's own configuration."""

from collections.abc import Iterator

from sim.cost.formats import resolve_format
from sim.cost.kernel_choice import packed_attention
from sim.cost.roofline import Roofline
from sim.errors import ScenarioError
from sim.hardware.engine_profile import EngineProfile, find_engine
from sim.hardware.profile import choose_profile
from sim.routing.least_outstanding import LeastOutstanding
from sim.scenario.defaults import KV_CACHE_DTYPES
from sim.scenario.findings import Context, Finding, note, reads
from sim.scenario.suggestions import found


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


@reads("engine", "hardware", "model")
def _engine_limits(context: Context) -> Iterator[Finding]:
    """The refusals of vLLM's `SchedulerConfig`; other engines start with a token budget below the context."""
    engine, stated = context.engine, context.scenario.engine
    if engine is None:
        return
    tokens, seqs, length = engine.max_num_batched_tokens, engine.max_num_seqs, engine.max_model_len
    if tokens is None or seqs is None or length is None:
        return
    if tokens < seqs:
        key = "max_num_batched_tokens" if stated.max_num_batched_tokens else "max_num_seqs"
        yield Finding(("engine", key), f"max_num_batched_tokens = {tokens} is below max_num_seqs = {seqs}")
    if tokens < length and not engine.enable_chunked_prefill and engine.preset == "vllm":
        message = f"found {tokens}; allowed without chunked prefill: at least max_model_len = {length}"
        yield Finding(("engine", "max_num_batched_tokens"), message)
    if engine.long_prefill_token_threshold > length:
        message = f"found {engine.long_prefill_token_threshold}; allowed: at most max_model_len = {length}"
        yield Finding(("engine", "long_prefill_token_threshold"), message)
    if stated.max_num_scheduled_tokens and stated.max_num_scheduled_tokens > tokens:
        message = f"found {stated.max_num_scheduled_tokens}; allowed: at most max_num_batched_tokens = {tokens}"
        yield Finding(("engine", "max_num_scheduled_tokens"), message)


@reads("engine", "sweep")
def _batch_waiting_is_whole(context: Context) -> Iterator[Finding]:
    engine, varied = context.scenario.engine, context.scenario.sweep.vary
    keys = {name: getattr(engine, name) for name in ("batch_wait_timeout_iters", "batch_wait_max_tokens_ratio")}
    if any(f"engine.{key}" in varied for key in keys) or all(keys.values()) or not any(keys.values()):
        return
    stated, missing = sorted(keys, key=lambda key: not keys[key])
    yield note(("engine", stated), f"no effect: prompts are held back only if {missing} is above 0 too")


@reads("router", "sweep")
def _router_has_a_choice(context: Context) -> Iterator[Finding]:
    scenario = context.scenario
    varied = "replicas" in scenario.sweep.vary
    if scenario.router != LeastOutstanding() and scenario.replicas == 1 and not varied:
        yield note(("router",), "no effect: there is one replica")


@reads("engine", "model")
def _experts_can_be_spread(context: Context) -> Iterator[Finding]:
    engine, model = context.scenario.engine, context.model
    if not engine.enable_expert_parallel or model is None:
        return
    where = ("engine", "enable_expert_parallel")
    if not model.experts:
        yield Finding(where, f"{model.name} is dense: it has no experts to spread; allowed here: false")
    elif engine.tensor_parallel_size == 1:
        yield note(where, "accepted, no effect: with tensor_parallel_size 1 one GPU holds all experts anyway")


@reads("cost_model")
def _engine_is_known(context: Context) -> Iterator[Finding]:
    try:
        _profile(context)
    except ScenarioError as error:
        yield from (Finding(("cost_model", "engine"), problem.message) for problem in error.problems)


def _profile(context: Context) -> EngineProfile | None:
    """The engine's profile; None where the cost model has no engine.

    Raises:
        ScenarioError: no such engine.
    """
    cost = context.scenario.cost_model
    return find_engine(cost.engine or "vllm") if isinstance(cost, Roofline) else None


@reads("engine", "cost_model", "hardware", "model", "arms", "sweep")
def _expanded_drafts_are_alone(context: Context) -> Iterator[Finding]:
    """Batch expansion is priced for steps without prompts: the only ones where that server verified drafts."""
    scenario, engine = context.scenario, context.engine
    if engine is None or not engine.enable_mixed_chunk or "engine.enable_mixed_chunk" in scenario.sweep.vary:
        return
    try:
        profile = _profile(context)
    except ScenarioError:  # `_engine_is_known`
        return
    if profile is not None and profile.expands_drafts and any(arm.speculates for arm in scenario.arms.values()):
        message = (
            f"allowed with engine {profile.id}: false; it verifies drafts by batch expansion, never beside prompts"
        )
        yield Finding(("engine", "enable_mixed_chunk"), message)


@reads("engine", "cost_model", "sweep")
def _captured_size_counts(context: Context) -> Iterator[Finding]:
    """Where launches of prompts are priced by it, or batches are padded."""
    cost, stated = context.scenario.cost_model, context.scenario.engine.max_cudagraph_capture_size
    if stated is None or "engine.max_cudagraph_capture_size" in context.scenario.sweep.vary:
        return
    where = ("engine", "max_cudagraph_capture_size")
    if not isinstance(cost, Roofline):
        yield note(where, f"accepted, no effect: cost_model {cost.kind} prices passes without CUDA graphs")
        return
    try:
        engine = find_engine(cost.engine or "vllm")
    except ScenarioError:  # `_engine_is_known`
        return
    if cost.graphs == "none" and not engine.eager_layer_ms.value:
        why = f"launches of prompts outside of graphs are not known of engine {engine.id}"
        yield note(where, f"accepted, no effect: {why}")
    elif cost.graphs == "none" and not engine.graphs_hold_prompts:
        yield note(where, f"accepted, no effect: engine {engine.id} captures no graphs for prompts, whatever the size")


@reads("cost_model", "hardware", "model")
def _experts_are_marlin(context: Context) -> Iterator[Finding]:
    cost, gpu, model = context.scenario.cost_model, context.gpu, context.model
    if not isinstance(cost, Roofline) or cost.experts_kernel == "auto" or gpu is None or model is None:
        return
    where = ("cost_model", "experts_kernel")
    dtype = model.resolve_weight_dtype(context.scenario.model.weight_dtype)
    if not model.experts:
        yield note(where, f"no effect: {model.name} has no experts")
    elif not resolve_format(dtype, gpu).weight_only:
        yield note(where, f"no effect: {gpu.name} multiplies {dtype} experts in their own format")
    elif "marlin" in (choose_profile(gpu).moe("weight_only").kernel or ""):
        yield note(where, f"no effect: the profile of {gpu.name} has Marlin's kernels anyway")


@reads("cost_model", "hardware")
def _kernels_differ(context: Context) -> Iterator[Finding]:
    cost, gpu = context.scenario.cost_model, context.gpu
    if not isinstance(cost, Roofline) or cost.attention_kernel == "auto" or gpu is None:
        return
    try:
        chosen = choose_profile(gpu, cost.located(context.base_dir).profile)
    except ScenarioError:  # reported where the cost model is bound
        return
    if packed_attention(chosen) is chosen:
        message = f"no effect: the profile of {gpu.name} ({chosen.profile.id}) has packed kernels anyway"
        yield note(("cost_model", "attention_kernel"), message)


@reads("cost_model", "hardware", "model")
def _waves_are_known(context: Context) -> Iterator[Finding]:
    """Waves are counted where the profile says how many blocks run at once."""
    cost, gpu, model = context.scenario.cost_model, context.gpu, context.model
    if not isinstance(cost, Roofline) or cost.attention_waves == "none" or gpu is None or model is None:
        return
    try:
        chosen = choose_profile(gpu, cost.located(context.base_dir).profile)
    except ScenarioError:  # reported where the cost model is bound
        return
    where = ("cost_model", "attention_waves")
    key = "fp8" if context.scenario.model.kv_cache_dtype == "fp8" else "bf16"
    if chosen.decode_attention(key).blocks_per_sm is None:
        yield note(where, f"no effect: the profile of {gpu.name} ({chosen.profile.id}) knows no waves for {key} KV")
    elif model.is_mla:
        yield note(where, f"no effect: {model.name} has latent attention")


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
