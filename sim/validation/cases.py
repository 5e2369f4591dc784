"""Published rows -> cases that can be run: a scenario, how it was driven, where its acceptance comes from."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sim.acceptance.recording import recorded_methods
from sim.catalogue import normalised
from sim.errors import SimError
from sim.scenario.load import load_mapping
from sim.validation import as_published
from sim.validation.as_published import UnrunnableError
from sim.validation.harness.base import Recorded
from sim.validation.lengths import KnownLengths, Lengths, recordings
from sim.validation.ngram_mean import ngram_at
from sim.validation.published import PublishedRow

#: Cases of at least this trust are scored.
MIN_TRUST = 4

#: `clones`: batches of copies of one request, timed with their prefill; `closed`: concurrency; `open`: request rate;
#: `steps`: decode steps at one context, the drafter's time as published.
Drive = Literal["clones", "closed", "open", "steps"]

#: Whose recorded sequences a folder holds: they are used for rows of this source and model only.
_RECORDED_SOURCE, _RECORDED_MODEL = "2601.11580", "llama-3.1-8b"
_RECORDED_AS = {"eagle3": "eagle", "ngram": "ngram"}


class NotRun(NamedTuple):
    """A row that is not scored, and why."""

    row: PublishedRow
    reason: str


@dataclass(frozen=True)
class Case:
    """A row that can be run.

    Attributes:
        load: batch, concurrency or requests per second.
        common: the scenario but for arms and cost model.
        config: `speculative_config`; for the drive `steps` only the number of drafts.
        engine: engine profile.
        remarks: what was assumed.
    """

    row: PublishedRow
    drive: Drive
    load: float
    common: Mapping[str, Any]
    config: Mapping[str, Any]
    engine: str
    lengths: Lengths
    recorded: Recorded | None
    remarks: tuple[str, ...]

    @property
    def num_drafts(self) -> int:
        """K."""
        return int(self.config["num_speculative_tokens"])

    @property
    def batch(self) -> int:
        """The load as a batch."""
        return round(self.load)

    @property
    def curve(self) -> tuple[str, ...]:
        """What rows have in common that differ in the load only."""
        return (*self.sweep, self.row.k_or_tree)

    @property
    def sweep(self) -> tuple[str, ...]:
        """What rows have in common that differ in the load and K only."""
        row = self.row
        context = row.input_len if self.drive == "steps" else ""
        return (row.source, row.table, row.target_model, row.gpu, row.engine, row.method, row.dataset, context)

    @property
    def tree(self) -> bool:
        """Whether token trees are verified."""
        return "tree" in self.config

    def cost_model(self, *, naive: bool) -> dict[str, object]:
        """The engine's fitted profile on the GPU's, or datasheet peaks."""
        if naive:
            return {"kind": "naive"}
        packed = {"attention_kernel": "packed"} if "flashinfer" in self.row.engine.lower() else {}
        waves = {"attention_waves": "count"} if self.drive == "steps" else {}  # sequences of one length
        return {"kind": "roofline", "engine": self.engine, **packed, **waves}

    def scenario(self, tokens_per_step: float | None, *, naive: bool = False) -> dict[str, Any]:
        """The scenario as plain data: what one would write in YAML.

        Args:
            tokens_per_step: mean of this K, bonus token included; None for plain decoding alone and for recordings.
            naive: with datasheet peaks.
        """
        arms: dict[str, Any] = {"plain": {}}
        if self.drive != "steps" and (tokens_per_step is not None or self.recorded):
            accepted = self._acceptance(tokens_per_step)
            arms["spec"] = {"speculative_config": dict(self.config), "acceptance": accepted}
        return {**self.common, "cost_model": self.cost_model(naive=naive), "arms": arms}

    def _acceptance(self, tokens: float | None) -> dict[str, Any]:
        if self.recorded and tokens is None:
            return {"kind": "sequence_replay", "path": str(self.recorded.path), "method": self.recorded.method}
        if tokens is None:
            raise UnrunnableError("acceptance not stated")
        if self.config["method"] == "ngram":
            return ngram_at(tokens, self.num_drafts, self.row.dataset)
        if self.config["method"] == "dflash":
            means = {self.num_drafts: tokens}
            return {"kind": "table_by_k", "tokens_per_step": means, "shape": "min_variance"}
        deep = as_published.depth(self.config)
        return {"kind": "length", "tokens_per_step": tokens, "num_speculative_tokens": deep, "shape": "min_variance"}


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
            not_run.append(NotRun(row, str(error).splitlines()[0]))
    return _with_acceptance(cases, not_run)


def _with_acceptance(cases: Sequence[Case], not_run: list[NotRun]) -> tuple[list[Case], list[NotRun]]:
    """Without the curves of a single load that nothing says the acceptance of."""
    loads: dict[tuple[str, ...], set[float]] = {}
    for case in cases:
        loads.setdefault(case.curve, set()).add(case.load)
    kept = []
    for case in cases:
        if case.recorded or case.row.tokens_per_step or len(loads[case.curve]) > 1:
            kept.append(case)
        else:
            not_run.append(NotRun(case.row, "acceptance not stated, and no other load to infer it from"))
    return kept, not_run


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
        drive, load = self._drive(row)
        target, gpu, engine = as_published.target(row.target_model), as_published.gpu(row.gpu), row.engine
        profile = as_published.engine(engine)
        config = self._config(row, drive, target.model)
        lengths = self._lengths.of(row, sent_by_vllm=drive == "open" and "vllm" in engine.lower())
        assumed = f"lengths: {lengths.assumed}" if lengths.assumed and drive != "steps" else ""
        stretched = (
            f"engine profile {profile} is of a later version" if as_published.engine_is_stretched(engine) else ""
        )
        case = Case(
            row=row, drive=drive, load=load, common=_common(row, drive, load, target, gpu, lengths), config=config,
            engine=profile, lengths=lengths, recorded=self._recording(row, drive, target.model, config),
            remarks=tuple(filter(None, (assumed, stretched))),
        )  # fmt: skip
        load_mapping(case.scenario(row.tokens_per_step or (None if case.recorded else 1.0 + 1e-9)))
        return case

    def _drive(self, row: PublishedRow) -> tuple[Drive, float]:
        if rate := re.fullmatch(r"([\d.]+) ?QPS", row.load):
            return "open", float(rate[1])
        if not row.load.isdigit() or row.load == "0":
            raise UnrunnableError(f"batch or concurrency not stated: {row.load!r}")
        if "decode only" in row.metric:
            return "steps", float(row.load)
        return ("clones" if row.source in self._clones else "closed"), float(row.load)

    def _config(self, row: PublishedRow, drive: Drive, model: str) -> dict[str, object]:
        if drive == "steps":
            return as_published.drafts(row.k_or_tree, row.notes)
        return as_published.speculative_config(row.method, row.k_or_tree, row.notes, model, int(row.n_gpus or 1))

    def _recording(self, row: PublishedRow, drive: Drive, model: str, config: Mapping[str, object]) -> Recorded | None:
        path, method = self._recorded.get(normalised(row.dataset)), _RECORDED_AS.get(str(config.get("method")))
        if drive != "clones" or path is None or method is None or "tree" in config:
            return None
        theirs = _RECORDED_SOURCE in row.source and model == _RECORDED_MODEL
        return Recorded(path.resolve(), method) if theirs and method in recorded_methods(path) else None


def _check_stated(row: PublishedRow) -> None:
    if row.trust < MIN_TRUST:
        raise UnrunnableError(f"trust {row.trust}: not scored")
    if "acceptance only" in row.metric:
        raise UnrunnableError("no time was measured, acceptance only")
    if row.measured_speedup is None:
        raise UnrunnableError("no speed-up")


def _common(
    row: PublishedRow, drive: Drive, load: float, target: as_published.Target, gpu: str, lengths: Lengths
) -> dict[str, Any]:
    engine: dict[str, object] = {"tensor_parallel_size": int(row.n_gpus or 1), "enable_prefix_caching": False}
    if drive != "open":
        engine["max_num_seqs"] = max(round(load), 1)
    if as_published.prefills_apart(row.engine):
        engine["enable_mixed_chunk"] = False
    return {
        "hardware": gpu,
        "model": {"target": target.model, "weight_dtype": target.weight_dtype},
        "engine": engine,
        "workload": _workload(drive, load, lengths),
    }


def _workload(drive: Drive, load: float, lengths: Lengths) -> dict[str, Any]:
    """The requests as each drive takes them: equal ones, but where many different ones meet."""
    if drive == "open":
        arrivals: dict[str, object] = {"kind": "poisson", "request_rate": load}
        return {"arrivals": arrivals, **_varied(lengths), "num_requests": OPEN_REQUESTS}
    arrivals = {"kind": "closed", "max_concurrency": max(round(load), 1)}
    if drive == "steps":  # priced, not served
        return {"arrivals": arrivals}
    if drive == "closed" and load > 1:
        return {"arrivals": arrivals, **_varied(lengths), "num_requests": CLOSED_ROUNDS * round(load)}
    fewest, most = CLONE_REQUESTS
    count = min(max(CLONE_TOKENS // lengths.output, fewest), most) if drive == "clones" else CLOSED_ROUNDS
    return {"arrivals": arrivals, **_equal(lengths), "num_requests": count}


#: Requests of an open loop; per user of a closed one.
OPEN_REQUESTS, CLOSED_ROUNDS = 400, 8
#: Batches of clones, one request each: as many as make so many tokens of output, within limits.
CLONE_TOKENS, CLONE_REQUESTS = 3000, (4, 16)


def _equal(lengths: Lengths) -> dict[str, object]:
    return {
        "prompt_tokens": {"kind": "fixed", "value": lengths.prompt},
        "output_tokens": {"kind": "fixed", "value": lengths.output},
    }


def _varied(lengths: Lengths) -> dict[str, object]:
    return {
        name: {"kind": "lognormal", "mean": float(mean), "cv": cv, "min": 2, "max": 16 * mean}
        for name, mean, cv in (
            ("prompt_tokens", lengths.prompt, lengths.prompt_cv),
            ("output_tokens", lengths.output, lengths.output_cv),
        )
    }
