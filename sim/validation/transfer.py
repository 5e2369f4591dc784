"""A GPU that was never measured: every GPU predicted from the kernels of other architectures and its own datasheet.

The joint fit over several GPUs is what the default profile holds. Left out is the whole architecture of the GPU that is
predicted, so that its errors are those of a user with an unknown GPU.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.calibration.attention import DECODE, PREFILL
from sim.calibration.collectives import ALL_REDUCE, EXCHANGE_OPERATORS
from sim.calibration.fit import ErrorStats, Floats, error_stats, fit
from sim.calibration.layers import LAYER_PRODUCTS
from sim.calibration.linear import GEMM, MOE, weight_format
from sim.calibration.operators import Operator, Rows
from sim.calibration.write import with_section
from sim.cost.collectives import link_class
from sim.errors import CalibrationError
from sim.hardware.catalogue import find_gpu
from sim.hardware.gpu import Gpu
from sim.hardware.profile import UNCERTAIN, ChosenProfile, Fit, Profile, choose_profile, find_profile, profile_ids
from sim.validation.physics import Comparison, Report
from sim.validation.servers import server_tables
from sim.validation.steps import compare_steps


def _collective(prefix: str) -> Callable[[Rows], str]:
    return lambda rows: f"{prefix}.{link_class(rows.gpu)}.{int(rows.table.numbers('n_gpus')[0])}"


def _moe_key(rows: Rows) -> str:
    fmt = weight_format(rows)
    return f"moe.{'weight_only' if fmt.weight_only else fmt.key}"


def _decode_key(rows: Rows) -> str:
    return f"decode_attention.{'fp8' if str(rows.table.text('kv_dtype')[0]).startswith(('fp8', 'int8')) else 'bf16'}"


#: Op groups that are fitted jointly, and where in a profile their parameters lie.
_JOINT: dict[str, tuple[Operator, Callable[[Rows], str]]] = {
    "GEMM": (GEMM, lambda rows: f"linear.{weight_format(rows).key}"),
    "decode attention": (DECODE, _decode_key),
    "prefill attention": (PREFILL, lambda _: "extend_attention"),
    "experts": (MOE, _moe_key),
    "all-reduce": (ALL_REDUCE, _collective("collectives")),
    **{own.name: (own, _collective(f"exchanges.{own.name.replace('-', '_')}")) for own in EXCHANGE_OPERATORS},
    "GEMM in an engine": (LAYER_PRODUCTS, lambda _: "linear.bf16"),
}
#: Priced with the joint fit, and not part of it.
_PRICED_ONLY = frozenset({"GEMM in an engine"})


class Part(NamedTuple):
    """Usable rows of one GPU for one section of a profile."""

    operator: Operator
    key: str
    rows: Rows

    @property
    def is_fitted(self) -> bool:
        """Whether the rows take part in joint fits."""
        return self.operator.name not in _PRICED_ONLY

    @property
    def what(self) -> str:
        """Op group and format; collectives of all group sizes together."""
        by_format = self.key.startswith(("linear", "decode", "moe"))
        return f"{self.operator.name}, {self.key.rsplit('.', 1)[-1]}" if by_format else self.operator.name


class Transfer(NamedTuple):
    """An op group (or whole steps, or servers) on one GPU.

    Attributes:
        what: op group and format, or the name of a server or step.
        gpu: as in the GPU catalogue.
        left_out: errors of the joint fit without the GPU's architecture; None where no other GPU has such rows.
        default: of the shipped default profile.
        kin: of the profile of another GPU of the same architecture; whole steps and servers only, where there is one.
    """

    what: str
    gpu: str
    left_out: ErrorStats | None
    default: ErrorStats
    kin: ErrorStats | None = None


def transfers(report: Report, folder: Path) -> list[Transfer]:
    """Every GPU of the report, its whole steps and servers, predicted from other architectures."""
    joint = JointProfiles(report)
    return [*_kernels(joint), *_steps(folder, joint), *_servers(folder, joint)]


class Joint(NamedTuple):
    """A profile for GPUs that were never measured, and the sections of it that were fitted."""

    profile: Profile
    sections: frozenset[str]


class JointProfiles:
    """Joint fits to the kernels of a report, one for every architecture that is left out, made when asked for."""

    def __init__(self, report: Report) -> None:
        self.parts = [part for part in _parts(report.comparisons) if _is_priced(part, find_profile("default"))]
        self._made: dict[str, Joint] = {}

    def without(self, gpu: Gpu) -> ChosenProfile:
        """What is known of a GPU whose architecture was never measured."""
        return ChosenProfile(self._joint(gpu).profile, find_profile("default"), UNCERTAIN)

    def fitted_without(self, gpu: Gpu) -> frozenset[str]:
        """Sections that other architectures have enough rows for; the others are those of the default profile."""
        return self._joint(gpu).sections

    def _joint(self, gpu: Gpu) -> Joint:
        if gpu.arch not in self._made:
            self._made[gpu.arch] = joint_profile(part for part in self.parts if part.rows.gpu.arch != gpu.arch)
        return self._made[gpu.arch]


def _kernels(joint: JointProfiles) -> Iterator[Transfer]:
    shipped, groups = find_profile("default"), defaultdict[tuple[str, str], list[Part]](list)
    for part in joint.parts:
        groups[part.what, part.rows.gpu.name].append(part)
    for (what, gpu), own in sorted(groups.items()):
        keys, one = {part.key for part in own}, own[0].rows.gpu
        left_out = _errors(own, joint.without(one).profile) if keys <= joint.fitted_without(one) else None
        yield Transfer(what, gpu, left_out, _errors(own, shipped))


def _steps(folder: Path, joint: JointProfiles) -> Iterator[Transfer]:
    found = (compare_steps(folder, choose, refit=False) for choose in (joint.without, _default, _kin_or_default))
    for left_out, shipped, kin in zip(*found, strict=True):
        what, gpu = f"{left_out.kind} step, {left_out.model}", find_gpu(left_out.gpu)
        yield Transfer(what, gpu.name, left_out.shipped, shipped.shipped, kin.shipped if _kin(gpu) else None)


def _servers(folder: Path, joint: JointProfiles) -> Iterator[Transfer]:
    found = (server_tables(folder, choose) for choose in (joint.without, _default, _kin_or_default))
    for left_out, shipped, kin in zip(*found, strict=True):
        server, gpu = left_out.server, find_gpu(left_out.server.gpu)
        what = f"server {server.model.rsplit('/', 1)[-1]} {server.precision}, {server.backend}"
        yield Transfer(what, gpu.name, left_out.errors, shipped.errors, kin.errors if _kin(gpu) else None)


def _default(gpu: Gpu) -> ChosenProfile:
    return choose_profile(gpu, "default")


def _kin_or_default(gpu: Gpu) -> ChosenProfile:
    return choose_profile(gpu, _kin(gpu) or "default")


def _kin(gpu: Gpu) -> str:
    """What `auto` would take if the GPU had no profile of its own; empty where it has no kin."""
    others = [p for p in map(find_profile, profile_ids()) if gpu.arch in p.archs and not p.is_measured_on(gpu)]
    nearest = min(others, key=lambda p: _distance(p, gpu), default=None)
    return "" if nearest is None else nearest.id


def _distance(profile: Profile, gpu: Gpu) -> float:
    own = profile.measured_on
    return math.inf if own is None else abs(math.log(own.memory_bandwidth / gpu.memory_bandwidth))


def joint_profile(parts: Iterable[Part]) -> Joint:
    """The default profile with every section refitted to all GPUs that have rows of it, where they are enough."""
    profile, fitted = find_profile("default"), set()
    sections = defaultdict[str, list[Part]](list)
    for part in parts:
        if part.is_fitted:
            sections[part.key].append(part)
    for key, found in sorted(sections.items()):
        try:
            profile = with_section(profile, key, _joint_fit(found, profile))
        except CalibrationError:
            continue
        fitted.add(key)
    return Joint(profile, frozenset(fitted))


def _parts(comparisons: Iterable[Comparison]) -> Iterator[Part]:
    for own in comparisons:
        if own.operator in _JOINT and own.usable_kernel:
            operator, key = _JOINT[own.operator]
            yield Part(operator, key(own.rows), own.rows)


def _section_of(part: Part, profile: Profile) -> Fit:
    """The section that prices the part; kernels of one format share it."""
    section: Any = profile
    for name in part.key.split("."):
        section = (
            section[int(name) if name.isdigit() else name] if isinstance(section, dict) else getattr(section, name)
        )
    return section  # type: ignore[no-any-return]


def _is_priced(part: Part, profile: Profile) -> bool:
    """Whether the profile has a section for it: not for collectives of 7 GPUs."""
    try:
        return _section_of(part, profile) is not None
    except LookupError:
        return False


def _joint_fit(parts: Sequence[Part], profile: Profile) -> Fit:
    """Parameters for all parts at once, every GPU with the same weight."""
    base = _section_of(parts[0], profile)
    parameters = [p for p in parts[0].operator.parameters(_like(base, parts)) if p.low < p.high]
    weights = np.concatenate([np.full(len(p.rows.table), 1.0 / _rows_of(p.rows.gpu, parts)) for p in parts])

    def section(values: Floats | Sequence[float]) -> Fit:
        return base.model_copy(update={p.name: float(v) for p, v in zip(parameters, values, strict=True)})

    found = fit(
        lambda values: np.concatenate([part.operator.price_us(part.rows, section(values)) for part in parts]),
        np.concatenate([part.rows.times_us for part in parts]),
        [getattr(base, p.name) or p.start for p in parameters],
        [(p.low, p.high) for p in parameters],
        weights,
        num_starts=1,
    )
    return section(found.parameters)


def _like(base: Fit, parts: Sequence[Part]) -> Rows:
    """Rows whose kernel class is that of the section, whose parameters it therefore has."""
    for part in parts:
        if all(getattr(base, name) == value for name, value in part.operator.constants(part.rows).items()):
            return part.rows
    return parts[0].rows


def _rows_of(gpu: Gpu, parts: Sequence[Part]) -> int:
    return sum(len(part.rows.table) for part in parts if part.rows.gpu.name == gpu.name)


def _errors(parts: Sequence[Part], profile: Profile) -> ErrorStats:
    predicted = [part.operator.price_us(part.rows, _section_of(part, profile)) for part in parts]
    return error_stats(np.concatenate(predicted), np.concatenate([part.rows.times_us for part in parts]))
