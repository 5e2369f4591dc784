"""Published rows -> cases, or the reason why a row cannot be run."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sim.acceptance.recording import recorded_methods
from sim.catalogue import normalised
from sim.errors import CapacityError, SimError
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import choose_profile
from sim.scenario.build import set_up
from sim.scenario.load import load_mapping
from sim.validation import as_published, stated_method
from sim.validation.as_published import Target, UnrunnableError
from sim.validation.case import Case, Drive, common_scenario
from sim.validation.documented import documented
from sim.validation.harness.base import Recorded
from sim.validation.lengths import KnownLengths, recordings
from sim.validation.published import PublishedRow
from sim.validation.stated_metric import Metric, metric

#: Rows of at least this trust are scored; those of trust 3 are advisory; the others are never run.
MIN_TRUST, ADVISORY_TRUST = 4, 3

#: What an advisory row of a research prototype is run on where it names no GPU.
ASSUMED_GPU = "a100-sxm-80gb"
_MOST_GPUS = 16

#: Whose recorded sequences a folder holds: they are used for rows of this source and model only.
_RECORDED_SOURCE, _RECORDED_MODEL = "2601.11580", "llama-3.1-8b"
_RECORDED_AS = {"eagle3": "eagle", "ngram": "ngram"}

_RATE = r"(?:qps ?)?(\d+\.?\d*|\.\d+) ?(?:qps|rps|req(?:uest)?s?/s(?:ec)?)?"
_BATCH = r"(?:(?:batch(?: size)?|bs|b|concurrency|clients|users|c)[ =:]*)?(\d+)(?:\.0+)? ?(?:clients|users|requests)?"


class NotRun(NamedTuple):
    """A row that is not run, and why."""

    row: PublishedRow
    reason: str


def build_cases(rows: Sequence[PublishedRow], folder: Path) -> tuple[list[Case], list[NotRun]]:
    """Cases of all rows that state enough, and the others with the reason; rows of other simulators are left out."""
    builder = CaseBuilder(rows, folder)
    cases: list[Case] = []
    not_run: list[NotRun] = []
    for row in (row for row in rows if not row.simulated):
        try:
            _check_stated(row)
            cases.append(builder.case(row))
        except SimError as error:
            not_run.append(NotRun(row, first_line(error)))
    return _counted(cases), not_run


def _counted(cases: Sequence[Case]) -> list[Case]:
    """Told apart where several measured the same at the same load."""
    before: Counter[tuple[object, ...]] = Counter()
    found = []
    for case in cases:
        key = (*case.line, case.load, case.advisory)
        found.append(replace(case, repeat=before[key]))
        before[key] += 1
    return found


def first_line(error: SimError) -> str:
    """The gist of a message."""
    return str(error).splitlines()[0]


class Drafted(NamedTuple):
    """The arm's `speculative_config`, and where a setting of it is from that the row does not state."""

    config: Mapping[str, object]
    documented_in: str


class CaseBuilder:
    """Turns rows into cases.

    Args:
        rows: all rows of the folder; sources whose notes speak of clones measured with them.
        folder: with recordings.
    """

    def __init__(self, rows: Sequence[PublishedRow], folder: Path) -> None:
        self._recorded = recordings(folder)
        self._lengths = KnownLengths(rows, self._recorded)
        self._clones = {row.source for row in rows if "clone" in row.notes}

    def case(self, row: PublishedRow) -> Case:
        """One row.

        Raises:
            SimError: why it cannot be run.
        """
        if reasons := list(_obstacles(row)):
            raise UnrunnableError("; ".join(reasons))
        drive, load = self._drive(row)
        target, profile = _target(row), as_published.engine(row.engine)
        gpu, gpu_assumed = _gpu(row)
        num_gpus, count_assumed = _num_gpus(row, target, gpu)
        drafted = _drafted(row, drive, target.model, num_gpus)
        lengths = self._lengths.of(row, sent_by_vllm=drive == "open" and "vllm" in row.engine.lower())
        assumed = f"lengths: {lengths.assumed}" if lengths.assumed and drive != "steps" else ""
        stretched = (
            f"engine profile {profile} is of a later version" if as_published.engine_is_stretched(row.engine) else ""
        )
        case = Case(
            row=row, drive=drive, load=load,
            common=common_scenario(drive, load, target, gpu, num_gpus, lengths, row.engine),
            config=drafted.config, engine=profile, lengths=lengths,
            recorded=self._recording(row, drive, target.model, drafted.config), metric=metric(row.metric),
            advisory=row.trust < MIN_TRUST or bool(drafted.documented_in or count_assumed),
            remarks=tuple(
                filter(None, (assumed, stretched, _borrowed(gpu), gpu_assumed, count_assumed, drafted.documented_in))
            ),
        )  # fmt: skip
        load_mapping(case.scenario(row.tokens_per_step or (None if case.recorded else 1.0 + 1e-9)))
        return case

    def _drive(self, row: PublishedRow) -> tuple[Drive, float]:
        text = re.sub(r"\(.*?\)", "", row.load.lower()).strip()
        if re.search("qps|rps|/s", text) and (rate := re.fullmatch(_RATE, text)) and float(rate[1]) > 0:
            return "open", float(rate[1])
        batch = re.fullmatch(_BATCH, text)
        if not batch or int(batch[1]) == 0:
            raise UnrunnableError(f"no single batch, concurrency or request rate: {row.load!r}")
        if "decode only" in row.metric:
            return "steps", float(batch[1])
        return ("clones" if row.source in self._clones else "closed"), float(batch[1])

    def _recording(self, row: PublishedRow, drive: Drive, model: str, config: Mapping[str, object]) -> Recorded | None:
        path, method = self._recorded.get(normalised(row.dataset)), _RECORDED_AS.get(str(config.get("method")))
        if drive != "clones" or path is None or method is None or "tree" in config:
            return None
        theirs = _RECORDED_SOURCE in row.source and model == _RECORDED_MODEL
        return Recorded(path.resolve(), method) if theirs and method in recorded_methods(path) else None


def _check_stated(row: PublishedRow) -> None:
    if row.trust < ADVISORY_TRUST:
        raise UnrunnableError(f"trust {row.trust}: never run")
    if "acceptance only" in row.metric:
        raise UnrunnableError("no time was measured, acceptance only: see the suite acceptance")
    if row.measured_speedup is None:
        raise UnrunnableError("no speed-up")


def _obstacles(row: PublishedRow) -> Iterator[str]:
    """Everything that is unknown here of what a row names, so that one reading tells all of it."""
    looks: tuple[Callable[[PublishedRow], object], ...] = (_target, _gpu, _engine, _method, _metric)
    for look in looks:
        try:
            look(row)
        except UnrunnableError as error:
            yield str(error)


def _engine(row: PublishedRow) -> str:
    return as_published.engine(row.engine)


def _metric(row: PublishedRow) -> Metric:
    return metric(row.metric)


def _method(row: PublishedRow) -> str:
    """Decode steps take the drafter's time as published, whatever it is."""
    return "" if "decode only" in row.metric else stated_method.method(row.method)


def _target(row: PublishedRow) -> Target:
    """Notes may begin with the format of the weights: `int4; ...`."""
    found = as_published.target(row.target_model)
    in_notes = as_published.weight_format(row.notes.split(";")[0]) if ";" in row.notes else "auto"
    return found if found.weight_dtype != "auto" or in_notes == "auto" else Target(found.model, in_notes)


def _gpu(row: PublishedRow) -> tuple[str, str]:
    """The GPU, and what is assumed of it: advisory rows need not name one."""
    try:
        return as_published.gpu(row.gpu), ""
    except UnrunnableError as error:
        if row.trust >= MIN_TRUST or "not stated" not in str(error) or not as_published.is_prototype(row.engine):
            raise
        return ASSUMED_GPU, f"GPU not stated: {ASSUMED_GPU}"


def _borrowed(gpu: str) -> str:
    """What prices a GPU that has no profile of its own."""
    mine = find_gpu(gpu)
    profile = choose_profile(mine).profile
    return "" if profile.is_measured_on(mine) else f"kernels: no profile of {mine.name}, that of {profile.id}"


def _num_gpus(row: PublishedRow, target: Target, gpu: str) -> tuple[int, str]:
    """How many GPUs, and what is assumed of it: where nothing says it, the fewest that hold the weights."""
    stated = as_published.num_gpus(row.n_gpus, row.gpu)
    if row.n_gpus.strip() or stated > 1:
        return stated, ""
    found = next(_sizes_that_hold(target, gpu), 1)
    return found, "" if found == 1 else f"{found} GPUs, the fewest that hold the weights"


def _sizes_that_hold(target: Target, gpu: str) -> Iterator[int]:
    size = 1
    while size <= _MOST_GPUS:
        data = {
            "hardware": gpu,
            "model": {"target": target.model, "weight_dtype": target.weight_dtype},
            "engine": {"tensor_parallel_size": size, "max_model_len": 1024},
            "workload": {
                "arrivals": {"kind": "closed", "max_concurrency": 1},
                "prompt_tokens": {"kind": "fixed", "value": 256},
                "output_tokens": {"kind": "fixed", "value": 256},
            },
            "arms": {"plain": {}},
        }
        try:
            set_up(load_mapping(data).scenario, "plain", Path())
            yield size
        except CapacityError:
            pass
        size *= 2


def _drafted(row: PublishedRow, drive: Drive, model: str, num_gpus: int) -> Drafted:
    """The drafter as stated, else with the settings that the engine's documents give."""
    if drive == "steps":
        return Drafted(stated_method.drafts(row.k_or_tree, row.notes), "")
    try:
        return Drafted(_config(row, row.method, row.k_or_tree, model, num_gpus), "")
    except UnrunnableError as error:
        known = documented(row.engine, row.method, row.k_or_tree)
        if known is None or "not stated" not in str(error):
            raise
        found = re.fullmatch(known.k_or_tree, row.k_or_tree.strip().lower())
        settings = found.expand(known.settings) if found else known.settings
        config = _config(row, known.drafter or row.method, settings, model, num_gpus)
        return Drafted(config, f"{' '.join(filter(None, (known.drafter, settings)))}, as documented")


def _config(row: PublishedRow, method: str, k_or_tree: str, model: str, num_gpus: int) -> dict[str, object]:
    config = stated_method.speculative_config(method, k_or_tree, row.notes, model, num_gpus)
    if config["method"] == "dflash" and "coder" in row.target_model.lower():
        config["draft_layers"] = 8  # arXiv 2602.06036: 5 layers, 8 for Coder models
    return config
