"""Fitted efficiencies of GPUs, apart from the datasheet facts in `gpu.py`. Data: `sim/hardware/data/profiles/*.yaml`.

A profile holds what measured kernels of one GPU reach: per weight format for matrix products and experts, per KV format
for attention, plus collectives, element-wise kernels and the sampler. A section or format that a profile leaves out is
taken from `default.yaml`. `choose_profile` picks the profile of a GPU and says how far it can be trusted.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import Field

from sim.catalogue import Catalogue, normalised, read_entry
from sim.errors import InvariantError
from sim.hardware.attention_fit import DecodeFit as DecodeFit
from sim.hardware.attention_fit import ExtendFit as ExtendFit
from sim.hardware.collective_fit import CollectiveFit as CollectiveFit
from sim.hardware.collective_fit import ExchangeFit as ExchangeFit
from sim.hardware.collective_fit import ExchangeKind as ExchangeKind
from sim.hardware.collective_fit import LinkClass as LinkClass
from sim.hardware.gemm_fit import GemmFit as GemmFit
from sim.hardware.gpu import Gpu
from sim.hardware.step_fit import Fit as Fit
from sim.hardware.step_fit import StepFit as StepFit
from sim.spec import Seq, Spec

#: One-sigma relative error of step times (docs/background/cost-model.md, "Which profile, and how far to trust it").
CALIBRATED, SAME_GENERATION, UNCERTAIN = 0.08, 0.15, 0.25


class MoeFit(Fit):
    """t = S_p(bytes/(BW e_m), padded FLOPs/(F e_c)) + launch + routing_passes M k 4 (h + I)/BW, per layer.

    Attributes:
        kernel: the measured kernel: kernels of one GPU and format differ by up to five times.
        routes_all_tokens: under expert parallelism the kernel sorts and sums the choices of all tokens, with blanks for
            experts of other GPUs (vLLM's `expert_map`: Triton, Marlin); False: those of its own experts only
            (TensorRT-LLM kernels).
    """

    kernel: str | None = None
    routes_all_tokens: bool = True
    memory_efficiency: float = Field(gt=0)
    compute_efficiency: float = Field(gt=0)
    smoothness: float | None = Field(None, ge=1)
    launch_us: float = Field(ge=0)
    routing_passes: float = Field(ge=0)
    tile_rows: int = Field(16, ge=1)


class ElementwiseFit(Fit):
    """Norms, rotary embedding, activation: S_p(launch, traffic_fraction bytes/BW) per layer."""

    launch_us: float = Field(ge=0)
    traffic_fraction: float = Field(ge=0)
    smoothness: float | None = Field(None, ge=1)


class SamplerFit(Fit):
    """launch + per_row rows + logit_passes times the float32 logits of rows beyond `free_rows`, over BW."""

    launch_us: float = Field(ge=0)
    per_row_us: float = Field(ge=0)
    free_rows: int = Field(ge=0)
    logit_passes: float = Field(ge=0)


class MeasuredOn(Spec):
    """The GPU of the measurements and the datasheet figures that the efficiencies are fractions of."""

    gpu: str
    bf16: float = Field(gt=0)
    memory_bandwidth: float = Field(gt=0)


class Profile(Spec):
    """One file of `data/profiles`; `id` is its stem. Sections left out come from the default profile."""

    id: str
    source: str
    fit_range: str
    measured_on: MeasuredOn | None = None
    archs: Seq[str] = ()
    linear: dict[str, GemmFit] = Field(default_factory=dict)
    decode_attention: dict[str, DecodeFit] = Field(default_factory=dict)
    extend_attention: ExtendFit | None = None
    mla: DecodeFit | None = None
    moe: dict[str, MoeFit] = Field(default_factory=dict)
    collectives: dict[LinkClass, dict[int, CollectiveFit]] = Field(default_factory=dict)
    exchanges: dict[ExchangeKind, dict[LinkClass, dict[int, ExchangeFit]]] = Field(default_factory=dict)
    elementwise: ElementwiseFit | None = None
    sampler: SamplerFit | None = None
    steps: StepFit | None = None

    def is_measured_on(self, gpu: Gpu) -> bool:
        """Fitted on this very GPU, with the same datasheet figures to 1 %?"""
        own = self.measured_on
        return (
            own is not None
            and normalised(own.gpu) == normalised(gpu.name)
            and math.isclose(own.bf16, gpu.bf16, rel_tol=0.01)
            and math.isclose(own.memory_bandwidth, gpu.memory_bandwidth, rel_tol=0.01)
        )


class Sections(NamedTuple):
    """The sections that every pass needs, each from the profile itself or from the default."""

    extend_attention: ExtendFit
    mla: DecodeFit
    elementwise: ElementwiseFit
    sampler: SamplerFit


@dataclass(frozen=True, slots=True)
class ChosenProfile:
    """A profile for one GPU, with the default profile behind it.

    Attributes:
        relative_error: one-sigma error of step times of formats that the profile itself covers.
    """

    profile: Profile
    default: Profile
    relative_error: float

    def linear(self, key: str) -> tuple[GemmFit, float]:
        """Parameters of matrix products in format `key` (bf16, fp8, nvfp4), and their relative error."""
        own = self.profile.linear.get(key)
        return (self.default.linear[key], UNCERTAIN) if own is None else (own, self.relative_error)

    def moe(self, key: str) -> MoeFit:
        """Parameters of routed experts in format `key` (bf16, fp8, nvfp4, weight_only)."""
        return self.profile.moe.get(key) or self.default.moe[key]

    def decode_attention(self, key: str) -> DecodeFit:
        """Parameters of decode attention with a KV cache in format `key` (bf16, fp8)."""
        return self.profile.decode_attention.get(key) or self.default.decode_attention[key]

    def sections(self) -> Sections:
        """The sections that do not depend on a format."""
        own, default = self.profile, self.default
        return Sections(
            _first(own.extend_attention, default.extend_attention),
            _first(own.mla, default.mla),
            _first(own.elementwise, default.elementwise),
            _first(own.sampler, default.sampler),
        )

    def collective(self, link: LinkClass, num_gpus: int) -> CollectiveFit:
        """Parameters for `num_gpus` GPUs; the nearest measured group size otherwise."""
        return _nearest(self.profile.collectives.get(link) or self.default.collectives[link], num_gpus)

    def exchange(self, kind: ExchangeKind, link: LinkClass, num_gpus: int) -> ExchangeFit:
        """The same for all-gathers and all-to-alls."""
        own = self.profile.exchanges.get(kind, {}).get(link)
        return _nearest(own or self.default.exchanges[kind][link], num_gpus)


F = TypeVar("F", bound=Fit)


def _nearest(fits: dict[int, F], num_gpus: int) -> F:
    """Of the measured group size that is nearest on a log scale."""
    return fits[min(fits, key=lambda n: abs(math.log(n / num_gpus)))]


def _first(own: F | None, default: F | None) -> F:
    found = own or default
    if found is None:
        raise InvariantError("the default profile lacks a section")
    return found


_PROFILES = Catalogue("cost-model profile", Path(__file__).parent / "data" / "profiles", Profile)


def profile_ids() -> tuple[str, ...]:
    """Ids of all shipped profiles, sorted."""
    return _PROFILES.ids()


def find_profile(name: str) -> Profile:
    """The shipped profile that `name` means; see `Catalogue.find` for what may be left out.

    Raises:
        ScenarioError: unknown or ambiguous; the message names the candidates.
    """
    return _PROFILES.find(name)


def load_profile(path: Path) -> Profile:
    """A profile of the user's own, such as `specsim calibrate` writes.

    Raises:
        ScenarioError: the file cannot be read, or is not a profile; every problem with its key.
    """
    return read_entry(path, "profile", Profile)


def names_file(wanted: str) -> bool:
    """Whether `wanted` is a file name rather than the id of a shipped profile."""
    return wanted.endswith((".yaml", ".yml")) or "/" in wanted


def choose_profile(gpu: Gpu, wanted: str = "auto") -> ChosenProfile:
    """The profile `wanted` (an id or a file name), or for `auto` the best one for this GPU.

    `auto`: fitted on this GPU; else fitted on a GPU of the same architecture (the one with the nearest memory
    bandwidth); else the default.

    Raises:
        ScenarioError: no profile has this id, or the file is not a profile.
    """
    if names_file(wanted):
        profile = load_profile(Path(wanted))
    else:
        profile = _best(gpu) if wanted == "auto" else find_profile(wanted)
    return ChosenProfile(profile, find_profile("default"), _trust(profile, gpu))


def _best(gpu: Gpu) -> Profile:
    kin = [p for p in map(find_profile, profile_ids()) if gpu.arch in p.archs]
    return min(kin, key=lambda p: (not p.is_measured_on(gpu), _distance(p, gpu)), default=find_profile("default"))


def _distance(profile: Profile, gpu: Gpu) -> float:
    """How far apart the memory bandwidths are, in nepers."""
    own = profile.measured_on
    return math.inf if own is None else abs(math.log(own.memory_bandwidth / gpu.memory_bandwidth))


def _trust(profile: Profile, gpu: Gpu) -> float:
    if profile.is_measured_on(gpu):
        return CALIBRATED
    return SAME_GENERATION if gpu.arch in profile.archs else UNCERTAIN
