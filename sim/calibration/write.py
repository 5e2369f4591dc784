"""Profiles as files: fitted sections put in their place, provenance, YAML that reads back to the same profile."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from sim.calibration.groups import MARK
from sim.calibration.read import Source
from sim.errors import CalibrationError
from sim.hardware.gpu import Gpu
from sim.hardware.profile import Fit, MeasuredOn, Profile

#: Enough that no rounding shows beside the error of any fit.
_DIGITS = 5


def with_section(profile: Profile, key: str, section: Fit) -> Profile:
    """`profile` with the section at `key` (`linear.bf16`, `collectives.nvlink.4`, `sampler`) replaced."""
    head, *path = key.split(".")
    return profile.model_copy(update={head: _replaced(getattr(profile, head), path, section)})


def _replaced(old: Any, path: Sequence[str], section: Fit) -> Any:
    if not path:
        return section
    name: str | int = int(path[0]) if path[0].isdigit() else path[0]
    inner = dict(old or {})
    return {**inner, name: _replaced(inner.get(name), path[1:], section)}


def finished(
    profile: Profile, profile_id: str, gpu: Gpu, sources: Sequence[Source], base: str, date: str | None
) -> Profile:
    """The profile under its own name, with provenance.

    It counts as measured on `gpu` where matrix products or whole steps were fitted; with nothing but other kernels the
    claim of the base profile stays.
    """
    files = ", ".join(f"{source.file} (SHA-256 {source.sha256})" for source in sources)
    when = f", {date}" if date else ""
    update: dict[str, Any] = {
        "id": profile_id,
        "source": f"specsim calibrate{when}, {gpu.name}, from {files}; what has no calibration of its own: {base}",
    }
    if base == "default":  # what was not fitted is read from there anyway, and then not taken for measured here
        update |= {name: _fitted_only(getattr(profile, name)) for name in _SECTIONS}
    fits = [*profile.linear.values(), *([profile.steps] if profile.steps else [])]
    if any(fit.source.startswith(MARK) for fit in fits):
        update["measured_on"] = MeasuredOn(gpu=gpu.name, bf16=gpu.bf16, memory_bandwidth=gpu.memory_bandwidth)
        update["archs"] = (gpu.arch,)
        update["fit_range"] = "the points of the files named under source"
    return profile.model_copy(update=update)


_SECTIONS = tuple(name for name, field in Profile.model_fields.items() if "Fit" in str(field.annotation))


def _fitted_only(section: Any) -> Any:
    if isinstance(section, dict):
        kept = {key: _fitted_only(value) for key, value in section.items()}
        return {key: value for key, value in kept.items() if value}
    return section if section is not None and section.source.startswith(MARK) else None


def profile_yaml(profile: Profile) -> str:
    """The file; reading it back gives the same numbers to five digits."""
    data = _plain(profile.model_dump(mode="python", exclude_defaults=True))
    text: str = yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)
    return text


def write_text(path: Path, text: str) -> None:
    """Write a whole file or none.

    Raises:
        CalibrationError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CalibrationError(f"cannot write {path}: {error.strerror or error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    return value
