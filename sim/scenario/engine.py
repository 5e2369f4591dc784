"""`engine:` of a scenario: vLLM's engine arguments, nothing renamed, so that a config can be pasted, and a preset.

Three kinds of keys: the fields below act on the simulation; `no_effect_keys` are real vLLM arguments that cannot change
what is simulated and are reported, never swallowed; `ONLY_VALUE` are arguments of which only one value is simulated.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from sim.hardware.gpu import Gpu
from sim.scenario.presets import PresetId, find_preset
from sim.spec import Spec
from sim.units import PositiveCount

Limit = Annotated[PositiveCount, Field(le=100_000_000)]
Fraction = Annotated[float, Field(ge=0, lt=1)]

#: vLLM `EngineArgs.get_batch_defaults`: GPUs of at least this size, other than the A100, get the larger defaults.
LARGE_GPU_BYTES = 70 * 2**30
#: Context length when neither the scenario nor the model states one.
FALLBACK_MODEL_LEN = 8192

#: vLLM arguments that change timing or memory and of which only the neutral value is simulated.
ONLY_VALUE: dict[str, object] = {
    "pipeline_parallel_size": 1, "data_parallel_size": 1, "decode_context_parallel_size": 1,
    "prefill_context_parallel_size": 1, "cpu_offload_gb": 0, "enable_lora": False, "enable_dbo": False,
    "enable_eplb": False,
    "runner": "generate", "use_v2_block_manager": True, "max_num_partial_prefills": 1, "device": "cuda",
}  # fmt: skip

#: What to write instead of some of them.
INSTEAD = {"data_parallel_size": "independent servers behind a router are `replicas` of the scenario"}

_NO_EFFECT = """
    model tokenizer tokenizer_mode tokenizer_revision revision code_revision hf_token hf_config_path hf_overrides
    trust_remote_code skip_tokenizer_init served_model_name config_format load_format download_dir ignore_patterns
    model_loader_extra_config seed enforce_eager disable_custom_all_reduce disable_log_stats disable_log_requests
    enable_log_requests max_logprobs logprobs_mode generation_config override_generation_config model_impl
    allowed_local_media_path limit_mm_per_prompt mm_processor_kwargs mm_processor_cache_gb media_io_kwargs
    interleave_mm_strings skip_mm_profiling language_model_only
    distributed_executor_backend worker_cls worker_extension_cls max_parallel_loading_workers
    ray_workers_use_nsight nnodes node_rank master_addr master_port
    swap_space calculate_kv_scales prefix_caching_hash_algo kv_cache_memory_bytes
    compilation_config cuda_graph_sizes cudagraph_capture_sizes max_seq_len_to_capture
    optimization_level attention_backend attention_config kernel_config moe_backend
    structured_outputs_config guided_decoding_backend reasoning_parser tool_call_parser enable_auto_tool_choice
    chat_template chat_template_content_format response_role additional_config profiler_config
    otlp_traces_endpoint collect_detailed_traces show_hidden_metrics_for_version kv_events_config
    all2all_backend expert_placement_strategy
    stream_interval disable_hybrid_kv_cache_manager disable_cascade_attn scheduler_cls
    disable_chunked_mm_input max_long_partial_prefills shutdown_timeout
    max_lora_rank max_loras lora_dtype fully_sharded_loras rope_scaling rope_theta quantization
    numa_bind enable_sleep_mode api_key host port uvicorn_log_level root_path allowed_origins allowed_methods
    api_server_count disable_uvicorn_access_log ssl_keyfile ssl_certfile middleware lora_modules
    enable_prompt_tokens_details enable_request_id_headers enable_server_load_tracking
    return_tokens_as_token_ids prompt_adapters disable_fastapi_docs headless
"""

Dtype = Literal["auto", "half", "float16", "bfloat16"]
EngineKvCacheDtype = Literal["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"]


class EngineArgs(Spec):
    """Engine arguments that act on the simulation; `null` means the preset's default for GPU, model and arm.

    Attributes:
        preset: the engine whose defaults fill in what is not stated, here and in `cost_model.engine` and the arms:
            [engines](engines.md). Stated keys count; only this one says which engine.
        enable_mixed_chunk: prefill and decode share a step; false: prefill has its own steps and goes first (SGLang).
        capacity_scheduler_policy: TensorRT-LLM's. `MAX_UTILIZATION` admits what fits now and preempts when KV blocks
            run short, as all engines but TensorRT-LLM; `GUARANTEED_NO_EVICT` admits a request only with the blocks of
            its whole output, for which the output length of the workload stands in.
        batch_wait_timeout_iters, batch_wait_max_tokens_ratio: TensorRT-LLM's batch waiting: while requests decode,
            prompts are held back for at most so many steps, or until the step holds this share of
            `max_num_scheduled_tokens`. Needs both; 0 is off.
        enable_expert_parallel: spread the experts of a mixture whole over the `tensor_parallel_size` GPUs, instead of a
            slice of every expert on each.
        max_num_scheduled_tokens: token budget of a step when it is to be smaller than `max_num_batched_tokens`.
        long_prefill_token_threshold: longest prefill chunk of one request; 0 = no limit.
        num_gpu_blocks_override: size of the KV pool in blocks, instead of what fits in memory.
        scheduler_reserve_full_isl: admit a request only when the KV blocks of its whole prompt are free.
        max_cudagraph_capture_size: passes with prompts of more tokens are launched kernel by kernel, in engines that
            capture CUDA graphs for prompts (docs/background/cost-model.md, "Launches"); 0 = none are captured. By
            default min(2 `max_num_seqs` (K + 1), 512, or 1024 on B200 and kin, the token budget).
        watermark: fraction of KV blocks kept free when admitting.
        enable_prefix_caching: keep full KV blocks for requests that begin with the same tokens; where prompts share
            nothing it only lets a preempted request find its own blocks again.
        dtype, kv_cache_dtype: as vLLM spells them; must agree with `model`.
    """

    no_effect_keys: ClassVar[frozenset[str]] = frozenset(_NO_EFFECT.split())

    preset: PresetId = "vllm"
    tensor_parallel_size: Annotated[PositiveCount, Field(le=1024)] = 1
    enable_expert_parallel: bool = False
    max_num_seqs: Limit | None = None
    max_num_batched_tokens: Limit | None = None
    max_num_scheduled_tokens: Limit | None = None
    max_model_len: Limit | None = None
    block_size: Annotated[PositiveCount, Field(le=4096)] | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    enable_chunked_prefill: bool | None = None
    enable_mixed_chunk: bool | None = None
    capacity_scheduler_policy: Literal["MAX_UTILIZATION", "GUARANTEED_NO_EVICT"] | None = None
    batch_wait_timeout_iters: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    batch_wait_max_tokens_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    long_prefill_token_threshold: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    num_gpu_blocks_override: Limit | None = None
    scheduler_reserve_full_isl: bool | None = None
    max_cudagraph_capture_size: Annotated[int, Field(ge=0, le=100_000_000)] | None = None
    watermark: Fraction = 0.0
    async_scheduling: bool | None = None
    scheduling_policy: Literal["fcfs"] = "fcfs"
    enable_prefix_caching: bool | None = None
    dtype: Dtype = "auto"
    kv_cache_dtype: EngineKvCacheDtype = "auto"

    def filled(self) -> "EngineArgs":
        """The same arguments with the preset's switches in the place of those that are `None`."""
        switches = find_preset(self.preset).switches
        unstated: dict[str, Any] = {key: at.value for key, at in switches.items() if getattr(self, key) is None}
        return self.model_copy(update=unstated)

    def resolved(self, gpu: Gpu, model_max_len: int | None = None, *, speculates: bool = False) -> "EngineArgs":
        """The same arguments with the preset's defaults for an API server in the place of every `None`.

        `num_gpu_blocks_override` stays None: its default is what fits in memory. vLLM's limits follow
        `EngineArgs._set_default_max_num_seqs_and_batched_tokens_args` of vLLM 0.19.

        Args:
            gpu: vLLM's choice between 8192 tokens / 1024 sequences and 2048 / 256; SGLang's chunk size.
            model_max_len: the model's own context length in tokens, if known.
            speculates: whether the arm does; SGLang then runs fewer requests.
        """
        preset, filled = find_preset(self.preset), self.filled()
        large = gpu.memory >= LARGE_GPU_BYTES and "a100" not in gpu.name.lower()
        model_len = self.max_model_len or model_max_len or FALLBACK_MODEL_LEN
        seqs = self.max_num_seqs or preset.seqs(speculates) or (1024 if large else 256)
        tokens = self.max_num_batched_tokens or preset.batched_tokens(gpu)
        if tokens is None:
            tokens = 8192 if large else 2048
            tokens = tokens if filled.enable_chunked_prefill else max(tokens, model_len)
            tokens = min(tokens, seqs * model_len)
        return filled.model_copy(
            update={
                "max_model_len": model_len,
                "max_num_seqs": self.max_num_seqs or min(seqs, tokens),
                "max_num_batched_tokens": tokens,
                "max_num_scheduled_tokens": min(self.max_num_scheduled_tokens or tokens, tokens),
            }
        )
