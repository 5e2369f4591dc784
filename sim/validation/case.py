"""A published row as something that can be run: a scenario, how it was driven, where its acceptance comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sim.validation import stated_method
from sim.validation.as_published import Target, UnrunnableError, prefills_apart
from sim.validation.harness.base import Recorded
from sim.validation.lengths import Lengths
from sim.validation.ngram_mean import ngram_at
from sim.validation.published import PublishedRow
from sim.validation.stated_metric import Metric

#: `clones`: batches of copies of one request, timed with their prefill; `closed`: concurrency; `open`: request rate;
#: `steps`: decode steps at one context, the drafter's time as published.
Drive = Literal["clones", "closed", "open", "steps"]


@dataclass(frozen=True)
class Case:
    """A row that can be run.

    Attributes:
        load: batch, concurrency or requests per second.
        common: the scenario but for arms and cost model.
        config: `speculative_config`; for the drive `steps` only the number of drafts.
        engine: engine profile.
        metric: what the source measured.
        advisory: shown apart and outside of all targets: of trust 3, or run with settings that the row does not state.
        remarks: what was assumed.
        repeat: rows before this one that measured the same at the same load.
    """

    row: PublishedRow
    drive: Drive
    load: float
    common: Mapping[str, Any]
    config: Mapping[str, Any]
    engine: str
    lengths: Lengths
    recorded: Recorded | None
    metric: Metric
    advisory: bool
    remarks: tuple[str, ...]
    repeat: int = 0

    @property
    def num_drafts(self) -> int:
        """K."""
        return int(self.config.get("num_speculative_tokens", 0)) or stated_method.depth(self.config)

    @property
    def num_gpus(self) -> int:
        """GPUs of the server."""
        return int(self.common["engine"]["tensor_parallel_size"])

    @property
    def batch(self) -> int:
        """The load as a batch."""
        return round(self.load)

    @property
    def curve(self) -> tuple[str, ...]:
        """What rows have in common that differ in the load only; each load once."""
        return (*self.line, str(self.repeat))

    @property
    def line(self) -> tuple[str, ...]:
        """The same with repeated measurements."""
        return (*self.sweep, self.row.k_or_tree)

    @property
    def sweep(self) -> tuple[str, ...]:
        """What rows have in common that differ in the load and K only."""
        row = self.row
        context = row.input_len if self.drive == "steps" else ""
        server = (row.source, row.table, row.target_model, row.gpu, row.n_gpus, row.engine)
        return (*server, row.method, row.dataset, row.temperature, context)

    @property
    def tree(self) -> bool:
        """Whether token trees are verified."""
        return "tree" in self.config

    @property
    def has_mean(self) -> bool:
        """Whether its acceptance is known: recorded, or a mean that the row states."""
        return self.recorded is not None or self.row.tokens_per_step is not None

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
        deep = stated_method.depth(self.config)
        return {"kind": "length", "tokens_per_step": tokens, "num_speculative_tokens": deep, "shape": "min_variance"}


def common_scenario(
    drive: Drive, load: float, target: Target, gpu: str, num_gpus: int, lengths: Lengths, stated_engine: str
) -> dict[str, Any]:
    """The scenario of a case but for arms and cost model."""
    engine: dict[str, object] = {"tensor_parallel_size": num_gpus, "enable_prefix_caching": False}
    if drive != "open":
        engine["max_num_seqs"] = max(round(load), 1)
    if prefills_apart(stated_engine):
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
