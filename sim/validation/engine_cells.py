"""Published cells of speculative decoding that an engine's costs are fitted to, and what the cost model says of them.

Every cell is priced by its own protocol, in closed form: a batch of equal requests in lockstep, prefill counted where
the source counts it. `Parameters` are those of an engine profile; GPU and model come from the cell, never from a fit.
Cells: `published_visible.csv`, described in its README.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sim.cost.base import BoundCost, EngineError, HostOverhead
from sim.cost.bound_engine import BoundEngine
from sim.cost.passes import prefill_pass, verify_pass
from sim.cost.roofline import bind_roofline
from sim.cost.stack import EngineCosts
from sim.deployment import Deployment, plan_deployment
from sim.hardware.catalogue import find_gpu
from sim.hardware.engine_profile import EngineProfile, find_engine
from sim.hardware.profile import choose_profile
from sim.models.catalogue import find_model
from sim.models.draft_heads import eagle_head
from sim.speculation.base import DraftWork
from sim.speculation.drafters import AutoregressiveDrafter


class Parameters(NamedTuple):
    """What is fitted. Units as in the engine profile; `output_tokens` is the mean length that SDB-F3 leaves open."""

    host_base_ms: float
    host_per_request_ms: float
    draft_pass_ms: float
    speculative_step_ms: float
    per_row_us: float
    kv_reads: float
    output_tokens: float = 2000.0


def shipped(engine: EngineProfile, output_tokens: float = 2000.0) -> Parameters:
    """The values of a profile."""
    return Parameters(
        host_base_ms=engine.host_base_ms.value,
        host_per_request_ms=engine.host_per_request_ms.value,
        draft_pass_ms=engine.draft_pass_ms.value,
        speculative_step_ms=engine.speculative_step_ms.value,
        per_row_us=engine.per_row_us.value,
        kv_reads=engine.kv_reads.value,
        output_tokens=output_tokens,
    )


class Arm(NamedTuple):
    """Target, drafter head (`eagle`, `eagle3`) and GPU of a cell."""

    model: str
    head: str
    gpu: str


@cache
def _deployment(arm: Arm) -> Deployment:
    target = find_model(arm.model, Path())
    return plan_deployment(
        target, eagle_head(target, arm.head), find_gpu(arm.gpu),  # type: ignore[arg-type]
        tensor_parallel_size=1, drafter_tensor_parallel_size=1, weight_dtype="auto", drafter_weight_dtype="auto",
        kv_cache_dtype="auto", block_size=16, gpu_memory_utilization=0.9, max_num_batched_tokens=8192,
        max_num_seqs=128, max_model_len=None, num_gpu_blocks_override=None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Engine:
    """Steps of an arm under given parameters, in milliseconds."""

    cost: BoundCost

    @classmethod
    def of(cls, arm: Arm, x: Parameters) -> "Engine":
        """Bind the parameters to the arm's GPU and models."""
        deployment = _deployment(arm)
        engine = BoundEngine(
            costs=EngineCosts(x.per_row_us * 1e-6, 0.0, x.speculative_step_ms * 1e-3, x.kv_reads),
            host=HostOverhead(x.host_base_ms * 1e-3, x.host_per_request_ms * 1e-3),
            draft_launch_s=x.draft_pass_ms * 1e-3,
            error=EngineError(),
            profile=find_engine("none"),
        )
        return cls(bind_roofline(deployment, choose_profile(deployment.gpu), engine))

    def step(self, batch: int, context: float, k: int) -> float:
        """One decode step with `k` drafts per sequence; linear between whole contexts, so that fits see a slope."""
        below = int(context)
        first, part = self._step(batch, below, k), context - below
        return first + part * (self._step(batch, below + 1, k) - first) if part else first

    def _step(self, batch: int, context: int, k: int) -> float:
        forward = verify_pass(batch, context, k)
        seconds = self.cost.target.price(forward).seconds + self.cost.host.seconds(batch)
        if k:
            seconds += AutoregressiveDrafter(self.cost).draft_seconds(
                DraftWork(forward, batch, batch * (context + 1), k)
            )
        return 1e3 * seconds

    def prefill(self, batch: int, tokens: int) -> float:
        """All prompts at once, without the drafter."""
        return 1e3 * self.cost.target.price(prefill_pass(tokens, 0, batch)).seconds


class Lockstep(NamedTuple):
    """SpecDecode-Bench: clones of one request; the timer spans prefill and decode."""

    prompt: int
    output: float

    def plain(self, engine: Engine, batch: int) -> float:
        """Milliseconds of a plain run."""
        return engine.prefill(batch, self.prompt) + self.output * engine.step(batch, self._context, 0)

    def speculative(self, engine: Engine, batch: int, k: int, tokens_per_step: float) -> float:
        """Milliseconds of a speculative run."""
        steps = self.output / tokens_per_step
        return engine.prefill(batch, self.prompt) + steps * engine.step(batch, self._context, k)

    def tokens_per_step(self, engine: Engine, k: int, speedup: float) -> float:
        """The mean tokens per step that a speed-up at batch 1 means."""
        decode = self.plain(engine, 1) / speedup - engine.prefill(1, self.prompt)
        return self.output * engine.step(1, self._context, k) / decode

    @property
    def _context(self) -> float:
        return self.prompt + self.output / 2


Predict = Callable[[Parameters], list[float]]


class Cells(NamedTuple):
    """Cells of one source that are predicted together; `predict` gives one value per measured one."""

    name: str
    measured: list[float]
    predict: Predict


class Row(NamedTuple):
    """What is used of a line of `published_visible.csv`."""

    case: str
    k: str
    batch: int
    plain: float
    spec: float
    speedup: float
    tokens_per_step: float


def read_rows(path: Path) -> list[Row]:
    """Rows with a whole number as batch or concurrency; numbers that are missing are 0."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["batch_or_concurrency"].isdigit()]
    columns = ("plain_value", "spec_value", "speedup", "mean_accepted_len")
    return [
        Row(
            row["case_id"],
            row["k_or_tree"],
            int(row["batch_or_concurrency"]),
            *(float(row[name] or 0) for name in columns),
        )
        for row in rows
    ]


def chain_speedups(name: str, rows: Sequence[Row], arm: Arm, run: Lockstep | None) -> Cells:
    """Speed-ups of a chain of 3 over the batch; tokens per step as published, else solved from batch 1 (not scored).

    Without `run`, the length of the outputs is the parameter `output_tokens` after 94 tokens of prompt.
    """
    known = rows[0].tokens_per_step
    scored = [row for row in rows if known or row.batch > 1]
    first = next((row.speedup for row in rows if row.batch == 1), 1.0)

    def predict(x: Parameters) -> list[float]:
        engine, clones = Engine.of(arm, x), run or Lockstep(94, x.output_tokens)
        length = known or clones.tokens_per_step(engine, 3, first)
        return [clones.plain(engine, row.batch) / clones.speculative(engine, row.batch, 3, length) for row in scored]

    return Cells(name, [row.speedup for row in scored], predict)


def plain_times(name: str, rows: Sequence[Row], arm: Arm, prompt: int, output: float) -> Cells:
    """Milliseconds per token and sequence of plain decoding, prefill spread; `output` 0 is the free parameter."""

    def predict(x: Parameters) -> list[float]:
        length, engine = output or x.output_tokens, Engine.of(arm, x)
        return [Lockstep(prompt, length).plain(engine, row.batch) / length for row in rows]

    return Cells(name, [1e3 * row.batch / row.plain for row in rows], predict)


def step_times(name: str, rows: Sequence[Row], arm: Arm, context: int) -> Cells:
    """Milliseconds per step at batch 1 over K: time per token times tokens per step, and the plain step."""

    def predict(x: Parameters) -> list[float]:
        engine = Engine.of(arm, x)
        return [engine.step(1, context, k) for k in (0, *(int(row.k) for row in rows))]

    return Cells(name, [rows[0].plain, *(row.spec * row.tokens_per_step for row in rows)], predict)


def step_ratios(name: str, rows: Sequence[Row], arm: Arm, context: int) -> Cells:
    """Cost of a speculative step in plain ones at batch 1, over K of `steps K topk 1 ...` chains."""

    def predict(x: Parameters) -> list[float]:
        engine = Engine.of(arm, x)
        return [engine.step(1, context, int(row.k.split()[1])) / engine.step(1, context, 0) for row in rows]

    return Cells(name, [row.tokens_per_step / row.speedup for row in rows], predict)


def beginning(rows: Iterable[Row], prefix: str, contains: str = "") -> list[Row]:
    """Rows of a source, by batch."""
    chosen = [row for row in rows if row.case.startswith(prefix) and contains in row.k]
    return sorted(chosen, key=lambda row: row.batch)
