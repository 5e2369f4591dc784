"""The shape of a scenario: one frozen spec, exactly what a user writes with every default filled in."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag, model_validator

from sim.cost.base import COST_MODELS, CostModel
from sim.hardware.catalogue import find_gpu
from sim.hardware.gpu import Gpu
from sim.models.catalogue import find_model
from sim.models.model import KvCacheDtype, Model, WeightDtype
from sim.routing.base import ROUTERS, RoutingPolicy
from sim.routing.least_outstanding import LeastOutstanding
from sim.scenario.arms import Arm
from sim.scenario.defaults import fill_defaults
from sim.scenario.engine import EngineArgs
from sim.scenario.ranges import Values, expand
from sim.scenario.slo import SloChoice
from sim.scenario.what_if import AS_STATED, WhatIf
from sim.spec import Seq, Spec
from sim.units import Bytes, BytesPerS, FlopPerS, PositiveCount
from sim.workload.workload import Workload

Slug = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,79}$")]


def _inline_or_name(value: object) -> str:
    return "name" if isinstance(value, str) else "inline"


GpuChoice = Annotated[Annotated[str, Tag("name")] | Annotated[Gpu, Tag("inline")], Discriminator(_inline_or_name)]
TargetChoice = Annotated[Annotated[str, Tag("name")] | Annotated[Model, Tag("inline")], Discriminator(_inline_or_name)]


class GpuOverrides(Spec):
    """Datasheet values to replace; `null` keeps the catalogue's."""

    sms: PositiveCount | None = None
    bf16: FlopPerS | None = None
    fp8: FlopPerS | None = None
    fp4: FlopPerS | None = None
    int8: FlopPerS | None = None
    memory: Bytes | None = None
    memory_bandwidth: BytesPerS | None = None
    l2: Bytes | None = None
    link_bandwidth: BytesPerS | None = None
    pcie_bandwidth: BytesPerS | None = None
    tdp_w: Annotated[float, Field(gt=0)] | None = None


class Hardware(Spec):
    """The GPUs; how many is `engine.tensor_parallel_size`.

    Attributes:
        gpu: catalogue id (case, `-` and `_` are ignored), or the datasheet inline.
        cost_per_gpu_hour_usd: price, for cost per token.
    """

    gpu: GpuChoice
    overrides: GpuOverrides = Field(default_factory=GpuOverrides)
    cost_per_gpu_hour_usd: Annotated[float, Field(gt=0)] | None = None

    def load(self) -> Gpu:
        """The datasheet with the overrides applied.

        Raises:
            ScenarioError: the catalogue has no such GPU.
        """
        gpu: Gpu = find_gpu(self.gpu) if isinstance(self.gpu, str) else self.gpu
        return gpu.model_copy(update=self.overrides.model_dump(exclude_none=True))


class ModelChoice(Spec):
    """The target model.

    Attributes:
        target: catalogue id, path to a Hugging Face `config.json`, or the shape inline.
        weight_dtype: format of the weights; `auto` = as published.
        kv_cache_dtype: format of the KV cache; `auto` = that of the activations.
    """

    target: TargetChoice
    weight_dtype: Literal[WeightDtype, "auto"] = "auto"
    kv_cache_dtype: KvCacheDtype = "auto"

    def load(self, base_dir: Path) -> Model:
        """The target's shape; relative paths start from `base_dir`.

        Raises:
            ScenarioError: neither in the catalogue nor a readable `config.json`.
        """
        return find_model(self.target, base_dir) if isinstance(self.target, str) else self.target


Objective = Literal[
    "output_throughput", "request_throughput", "total_token_throughput", "request_goodput", "tok_s_user_median",
    "mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "median_tpot_ms", "p99_tpot_ms",
    "mean_itl_ms", "median_itl_ms", "p99_itl_ms", "mean_e2el_ms", "median_e2el_ms", "p99_e2el_ms",
    "usd_per_mtok_output",
]  # fmt: skip


class Breakeven(Spec):
    """Where each arm stops (or starts) paying along the first varied field.

    Attributes:
        objectives: metrics to compare with the baseline.
        confidence: level of the paired intervals.
        min_gain: speed-up that counts as paying: 1.1 asks where the arm is 10 % better.
        half_width: `specsim breakeven` adds replicates until every crossing's interval is this narrow, relative to it.
        tolerance: it adds points until a crossing is bracketed this closely.
        max_replicates, max_points: where it stops all the same.
    """

    objectives: Annotated[Seq[Objective], Field(min_length=1)] = ("output_throughput", "mean_tpot_ms")
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    min_gain: Annotated[float, Field(gt=0, le=100)] = 1.0
    half_width: Annotated[float, Field(gt=0, le=10)] = 0.15
    tolerance: Annotated[float, Field(gt=0, le=10)] = 0.1
    max_replicates: Annotated[PositiveCount, Field(le=10_000)] = 10
    max_points: Annotated[PositiveCount, Field(le=1000)] = 24


class Sweep(Spec):
    """What is repeated and varied.

    Attributes:
        replicates: runs per cell and arm, with independent random numbers.
        vary: dotted key of any field -> values to try: a list, or a range such as `1:512:log2` or
            `{min: 0.5, max: 0.9, num: 5}`.
        combine: what several varied keys make: `grid` = all combinations, `zip` = the first values together, then the
            second ones, and so on.
        breakeven: look for break-even points; default when something is varied.
        regret: give the arms with a K rule their oracle and all fixed K as arms of their own (`eagle3-oracle`,
            `eagle3-k1`, ...; once for arms that differ in the rule only), for `regret.csv`.
    """

    replicates: Annotated[PositiveCount, Field(le=10_000)] = 5
    vary: Annotated[dict[str, Values], BeforeValidator(expand)] = Field(default_factory=dict)
    combine: Literal["grid", "zip"] = "grid"
    breakeven: Breakeven | None = None
    regret: bool = False

    @model_validator(mode="after")
    def _zips(self) -> Self:
        lengths = {key: len(values) for key, values in self.vary.items()}
        if self.combine == "zip" and len(set(lengths.values())) > 1:
            found = ", ".join(f"{key} {length}" for key, length in lengths.items())
            raise ValueError(f"combine: zip needs equally many values of every varied field, found {found}")
        return self


class Scenario(Spec):
    """One question: these arms, on this hardware and model, under this traffic.

    Attributes:
        name: names the results folder.
        seed: of all random numbers; replicates and arms share it.
        replicas: servers like this one, behind a router; each has its own `tensor_parallel_size` GPUs, and the load is
            that of all together.
        router: which replica gets a request.
        baseline: the arm the others are compared with; default `plain`, else the first arm without speculation.
        what_if: factors on times, acceptance and lengths, all 1 unless a study asks how much depends on them.
    """

    schema_version: Literal[1] = 1
    name: Slug = "scenario"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    hardware: Hardware
    model: ModelChoice
    cost_model: Annotated[CostModel, COST_MODELS]
    engine: EngineArgs = Field(default_factory=EngineArgs)
    replicas: Annotated[PositiveCount, Field(le=1024)] = 1
    router: Annotated[RoutingPolicy, ROUTERS] = Field(default_factory=LeastOutstanding)
    arms: Annotated[dict[Slug, Arm], Field(min_length=1)]
    baseline: str = ""
    workload: Workload
    slo: SloChoice | None = None
    what_if: WhatIf = AS_STATED
    sweep: Sweep = Field(default_factory=Sweep)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        return fill_defaults(data)
