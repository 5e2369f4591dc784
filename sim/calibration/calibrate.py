"""`specsim calibrate`: files of measured times -> a profile, with the error on points that were left out."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.calibration.attention_groups import decode_groups, extend_groups
from sim.calibration.collective_groups import collective_groups
from sim.calibration.forward_json import Step, parse_forward
from sim.calibration.groups import Fitted, Group, fit_group
from sim.calibration.kernels import Setting, gemm_groups, small_kernel_groups
from sim.calibration.moe_groups import moe_groups
from sim.calibration.plausible import DTYPES, check_prediction, check_times
from sim.calibration.problems import Problems
from sim.calibration.read import Source, Table, parse_table, read_source
from sim.calibration.step_groups import StepPoint, forward_steps, step_group, table_steps
from sim.calibration.write import with_section
from sim.catalogue import normalised
from sim.errors import CalibrationError, SimError
from sim.hardware.catalogue import find_gpu
from sim.hardware.gpu import Gpu
from sim.hardware.profile import ChosenProfile, Profile, choose_profile


class Request(NamedTuple):
    """What to calibrate.

    Attributes:
        files: CSV tables, or JSON of `vllm bench forward`.
        gpu: id of the GPU that the times were taken on; rows of other GPUs are left out.
        dtype: only this weight format of matrix products and experts; None: all. Steps without a format of their own
            are taken to have this one, or the model's.
        hold_out: share of the points (whole shapes, where there are enough) to leave out of the fit.
        base: profile to start from: an id, a file name, or `auto`.
        model: what the steps of a JSON were measured on; they do not say.
    """

    files: tuple[Path, ...]
    gpu: str
    dtype: str | None = None
    hold_out: float = 0.2
    base: str = "auto"
    model: str | None = None


class Calibration(NamedTuple):
    """A fitted profile and how it was found.

    Attributes:
        profile: the base profile with the fitted sections in their place.
        base: id of the profile started from.
        fitted: every op group, in the order fitted.
        sources: the files read.
        notes: what was left out.
    """

    profile: Profile
    base: str
    fitted: tuple[Fitted, ...]
    sources: tuple[Source, ...]
    notes: tuple[str, ...]


class _Inputs(NamedTuple):
    tables: list[Table]
    steps: list[Step]
    sources: list[Source]


def calibrate(request: Request) -> Calibration:
    """Fit every op group that the files have points of.

    Raises:
        CalibrationError: files that cannot be read, impossible times, too few points: everything at once.
        ScenarioError: unknown GPU, base profile or model.
    """
    gpu, problems = find_gpu(request.gpu), Problems()
    base = choose_profile(gpu, request.base)
    inputs = _read(request, problems)
    tables = [_of_gpu(table, gpu, problems) for table in inputs.tables]
    for table in tables:
        check_times(table, gpu, problems)
    problems.raise_if_any()
    wanted, notes = _of_dtype(tables, request.dtype)
    steps = _steps(wanted, inputs.steps, request)
    run = _Run(request.hold_out, problems, [], notes)
    run.fit_all(wanted, steps, Setting(gpu, base))
    problems.raise_if_any()
    fitted = run.fitted
    if not fitted:
        raise CalibrationError("the files have no points that any op group could be fitted to")
    notes += _unused(wanted, fitted)
    if request.model is not None and not inputs.steps:
        notes.append("--model had no effect: no file holds steps of `vllm bench forward`")
    profile = base.profile
    for one in fitted:
        profile = with_section(profile, one.group.key, one.section)
    return Calibration(profile, base.profile.id, tuple(fitted), tuple(inputs.sources), tuple(notes))


def _read(request: Request, problems: Problems) -> _Inputs:
    inputs = _Inputs([], [], [])
    for path in request.files:
        found = read_source(path, problems)
        if found is None:
            continue
        source, text = found
        inputs.sources.append(source)
        if text.lstrip()[:1] in ("[", "{"):
            inputs.steps.extend(parse_forward(source.file, text, problems))
        else:
            table = parse_table(source.file, text, problems)
            inputs.tables.extend([] if table is None else [table])
    if inputs.steps and request.model is None:
        files = ", ".join(sorted({step.file for step in inputs.steps}))
        problems.add(files, "", "steps of `vllm bench forward` do not name their model: add --model")
    return inputs


def _of_gpu(table: Table, gpu: Gpu, problems: Problems) -> Table:
    own = table.where([normalised(name) == normalised(gpu.name) for name in table.texts["gpu"]])
    if table.rows and not own.rows:
        there = ", ".join(sorted(set(table.texts["gpu"])))
        problems.add(table.file, "gpu", f"no rows of {gpu.name}; there are {there}")
    return own


def _of_dtype(tables: Sequence[Table], dtype: str | None) -> tuple[list[Table], list[str]]:
    """Tables with the rows of one weight format; tables without formats stay whole."""
    if dtype is None:
        return list(tables), []
    kept, notes = [], []
    for table in tables:
        if "dtype" in table.texts:
            own = table.where([DTYPES.get(name, name) == dtype for name in table.texts["dtype"]])
            if len(own.rows) < len(table.rows):
                notes.append(
                    f"{table.file}: {len(table.rows) - len(own.rows)} rows of other formats than {dtype} left out"
                )
            kept.append(own)
        else:
            kept.append(table)
    return kept, notes


def _steps(tables: Sequence[Table], steps: Sequence[Step], request: Request) -> list[StepPoint]:
    points = table_steps(tables)
    if steps and request.model is not None:
        points += forward_steps(steps, request.model, request.dtype or "auto")
    return points


def _unused(tables: Sequence[Table], fitted: Sequence[Fitted]) -> Iterator[str]:
    """Rows that no op group could use."""
    used = {place for one in fitted for place in one.group.places}
    for table in tables:
        rows = sum((table.file, row) not in used for row in table.rows)
        if rows:
            yield f"{table.file}: {rows} of {len(table.rows)} rows say nothing about any op group (see the reference)"


class _Run(NamedTuple):
    """Fits in stages: a later stage prices with what the earlier ones found."""

    hold_out: float
    problems: Problems
    fitted: list[Fitted]
    notes: list[str]

    def fit_all(self, tables: Sequence[Table], steps: Sequence[StepPoint], setting: Setting) -> None:
        for stage in _STAGES:
            setting = self._fit_stage(stage(tables, setting), setting)
        if not steps:
            return
        try:
            group = step_group(steps, setting)
        except SimError as error:
            self.problems.add(", ".join(sorted({point.place[0] for point in steps})), "model", str(error))
        else:
            self._fit_stage([group], setting)

    def _fit_stage(self, groups: Sequence[Group], setting: Setting) -> Setting:
        """Fit groups; of several for one section the best is kept. Returns the setting with the fitted sections."""
        best: dict[str, Fitted] = {}
        for group in groups:
            if not group.measured.size:
                self.notes.append(f"{group.key}: left out; {'; '.join(group.notes)}")
                continue
            check_prediction(group, self.problems)
            found = fit_group(group, self.hold_out, self.problems)
            if found is not None and (group.key not in best or found.in_sample.mape < best[group.key].in_sample.mape):
                best[group.key] = found
        profile = setting.base.profile
        for one in best.values():
            profile = with_section(profile, one.group.key, one.section)
        self.fitted.extend(best.values())
        return setting._replace(base=ChosenProfile(profile, setting.base.default, setting.base.relative_error))


_STAGES: tuple[Callable[[Sequence[Table], Setting], list[Group]], ...] = (
    gemm_groups, small_kernel_groups, collective_groups, moe_groups, decode_groups, extend_groups,
)  # fmt: skip
