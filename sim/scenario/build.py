"""Specs -> live objects -> one simulated run. Used by `experiment`, `report`-free tests and the linter."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import simpy

from sim.acceptance.base import Floats, Tape
from sim.cost.base import BoundCost
from sim.cost.padding import largest_captured
from sim.deployment import Deployment, plan_deployment
from sim.draft_length.base import Rule
from sim.errors import InvariantError, ScenarioError
from sim.metrics.record import RunRecord
from sim.rng import Streams
from sim.scenario.arms import Arm
from sim.scenario.engine import EngineArgs
from sim.scenario.rule_setting import OffLine, rule_setting, steady_step_seconds
from sim.scenario.schema import Scenario
from sim.scenario.what_if import AS_STATED, WhatIf
from sim.scheduler.overlapped import OverlappedScheduler
from sim.scheduler.plan import SchedulerConfig
from sim.scheduler.schedule import Scheduler
from sim.server.assemble import assemble
from sim.server.overlapped import OverlappedServer
from sim.server.pricing import StepPricer
from sim.server.recorder import Ledger, Recorder
from sim.server.router import Router
from sim.server.server import Server
from sim.speculation.base import Drafter
from sim.workload.requests import RequestTable

T = TypeVar("T")


def resolved(value: T | None) -> T:
    """A value that `EngineArgs.resolved` has filled in."""
    if value is None:
        raise InvariantError("an engine argument was left unresolved")
    return value


@dataclass(frozen=True, slots=True)
class ArmSetup:
    """One arm of a scenario, bound: everything but the requests.

    Attributes:
        engine: engine arguments with every default filled in.
        deployment: memory budget and KV pool.
        cost: prices of the passes.
        drafter: cost of drafting.
        arm: the spec.
        what_if: factors of the scenario, already in the prices.
    """

    engine: EngineArgs
    deployment: Deployment
    cost: BoundCost
    drafter: Drafter
    arm: Arm
    what_if: WhatIf = AS_STATED

    def survival(self, num_draft_tokens: int) -> Floats:
        """Unconditional acceptance rates of a step with so many drafts, shape (num_draft_tokens,) or (tree depth,)."""
        if not num_draft_tokens or self.arm.acceptance is None:
            return np.zeros(0)
        return self.what_if.survival(self.arm.speculative_config.survival(self.arm.acceptance, num_draft_tokens))

    def draft_tokens(self, num_seqs: int) -> int:
        """K of a batch of this size; the largest where K does not follow from the batch size alone."""
        most = self.arm.speculative_config.max_draft_tokens
        table = self.arm.k_rule.table(most)
        return most if table is None else table.at(num_seqs)

    @property
    def scheduler_config(self) -> SchedulerConfig:
        """Limits of the scheduler."""
        engine, deployment = self.engine, self.deployment
        return SchedulerConfig(
            max_num_seqs=resolved(engine.max_num_seqs),
            max_num_scheduled_tokens=resolved(engine.max_num_scheduled_tokens),
            max_model_len=resolved(engine.max_model_len),
            block_size=resolved(engine.block_size),
            num_blocks=deployment.num_kv_blocks,
            lookahead_tokens=self.arm.speculative_config.lookahead_tokens,
            long_prefill_token_threshold=engine.long_prefill_token_threshold,
            enable_chunked_prefill=resolved(engine.enable_chunked_prefill),
            scheduler_reserve_full_isl=resolved(engine.scheduler_reserve_full_isl),
            watermark=engine.watermark,
            separate_prefill=not engine.enable_mixed_chunk,
            reserve_output=engine.capacity_scheduler_policy == "GUARANTEED_NO_EVICT",
            draft_slots=self.arm.speculative_config.max_draft_tokens * (2 if engine.async_scheduling else 1),
            batch_wait_timeout_iters=engine.batch_wait_timeout_iters,
            batch_wait_max_tokens_ratio=engine.batch_wait_max_tokens_ratio,
            enable_prefix_caching=resolved(engine.enable_prefix_caching),
            use_eagle=self.arm.speculative_config.use_eagle,
        )


def set_up(scenario: Scenario, arm: str, base_dir: Path) -> ArmSetup:
    """Bind one arm: catalogue look-ups, memory, prices.

    Raises:
        ScenarioError: a name is not in the catalogue, or the cost model cannot price the deployment.
        CapacityError: the model and the drafter do not fit the GPUs.
    """
    spec = scenario.arms[arm].located(base_dir)
    gpu, target = scenario.hardware.load(), scenario.model.load(base_dir)
    engine = scenario.engine.resolved(gpu, target.max_model_len, speculates=spec.speculates)
    method = spec.speculative_config
    deployment = plan_deployment(
        target,
        method.drafter_model(target, base_dir),
        gpu,
        tensor_parallel_size=engine.tensor_parallel_size,
        drafter_tensor_parallel_size=method.drafter_tensor_parallel_size(engine.tensor_parallel_size),
        weight_dtype=scenario.model.weight_dtype,
        drafter_weight_dtype=scenario.model.weight_dtype if method.shares_target else "auto",
        kv_cache_dtype=scenario.model.kv_cache_dtype,
        block_size=resolved(engine.block_size),
        gpu_memory_utilization=engine.gpu_memory_utilization,
        max_num_batched_tokens=resolved(engine.max_num_batched_tokens),
        max_num_seqs=resolved(engine.max_num_seqs),
        max_model_len=scenario.engine.max_model_len,
        num_gpu_blocks_override=engine.num_gpu_blocks_override,
        speculates=spec.speculates,
        drafter_shares_target=method.shares_target,
        enable_expert_parallel=engine.enable_expert_parallel,
    )
    if scenario.engine.max_model_len is None:  # not stated: the model's own length, or what fits
        fits = min(resolved(engine.max_model_len), deployment.num_kv_tokens)
        engine = engine.model_copy(update={"max_model_len": fits})
    limits = (resolved(engine.max_num_seqs), method.max_draft_tokens, resolved(engine.max_num_batched_tokens))
    stated = engine.max_cudagraph_capture_size
    captured = largest_captured(*limits, gpu) if stated is None else stated
    deployment = replace(deployment, max_cudagraph_capture_size=captured)
    what_if = scenario.what_if
    cost = method.verification_cost(scenario.cost_model.located(base_dir).bind(deployment))
    cost = what_if.cost(cost)
    drafter = what_if.drafter(method.bind(deployment, cost))
    return ArmSetup(engine, deployment, cost, drafter, spec, what_if)


def draw_tape(arm: Arm, requests: RequestTable, streams: Streams) -> Tape:
    """The arm's acceptance on these requests; requests of a class with an acceptance of its own follow that one."""
    method = arm.speculative_config
    if not method.max_draft_tokens:
        return Tape(np.zeros(requests.num_positions, np.uint8))
    if arm.acceptance is None:
        raise ScenarioError("an arm that speculates must state its acceptance")
    tape = method.tape(arm.acceptance, requests, streams)
    for name, model in arm.class_acceptance.items():
        there = np.repeat(requests.class_id == requests.class_names.index(name), requests.output_tokens)
        tape = tape.overlaid(method.tape(model, requests, streams), there, method.max_draft_tokens)
    tape.check()
    return tape


def bind_rule(setup: ArmSetup, requests: RequestTable, tape: Tape, streams: Streams) -> Rule:
    """The arm's K rule, bound to one run."""
    pricer = StepPricer(setup.cost, setup.drafter, setup.arm.k_rule.switching._replace(switch_s=0.0))
    seconds = steady_step_seconds(pricer, resolved(setup.engine.async_scheduling))
    most, limit = setup.arm.speculative_config.max_draft_tokens, resolved(setup.engine.max_num_seqs)
    known = OffLine(most, limit, seconds, setup.survival)
    return setup.arm.k_rule.bind(rule_setting(known, requests, tape, streams))


def simulate(scenario: Scenario, arm: str, replicate: int, base_dir: Path, *, leap: bool = True) -> RunRecord:
    """Run one arm of one cell (a scenario without anything left to vary) and return its columns.

    Args:
        scenario: what to run.
        arm: name of the arm.
        replicate: which random numbers; all arms of a replicate meet the same requests and the same text.
        base_dir: folder that relative file names start from.
        leap: let the server go through foreseeable steps at once (same results, faster).

    Raises:
        ScenarioError, CapacityError: as `set_up`, and for unreadable traces.
        InvariantError: a law of the simulation was broken.
    """
    return simulate_arm(scenario, set_up(scenario, arm, base_dir), replicate, base_dir, leap=leap)


def simulate_arm(
    scenario: Scenario, setup: ArmSetup, replicate: int, base_dir: Path, *, leap: bool = True
) -> RunRecord:
    """Run an arm that is bound already; arguments, and what is raised, as in `simulate`."""
    streams = Streams(scenario.seed, replicate)
    requests = scenario.what_if.requests(scenario.workload.requests(streams, base_dir))
    tape = draw_tape(setup.arm, requests, streams)
    k = setup.arm.speculative_config.max_draft_tokens
    if k and setup.what_if.acceptance != 1.0:  # survivals take time
        tape = setup.what_if.tape(tape, setup.survival(k), requests, streams)
    return serve(scenario, setup, requests, tape, streams, leap=leap)


def serve(
    scenario: Scenario, setup: ArmSetup, requests: RequestTable, tape: Tape, streams: Streams, *, leap: bool = True
) -> RunRecord:
    """Run a bound arm on these requests and this acceptance, with the arrivals and replicas of the scenario.

    Raises:
        InvariantError: a law of the simulation was broken.
    """
    run = _Run(setup, requests, tape, streams, leap)
    servers = [run.server(number) for number in range(scenario.replicas)]
    front = servers[0] if len(servers) == 1 else Router(servers, scenario.router, requests)
    arrivals = scenario.workload.arrivals
    submit = front.submit if arrivals.waits else front.post
    run.env.process(arrivals.drive(run.env, requests, submit))
    return run.record()


class _Run:
    """The servers of one run: their clock, what they write down, and their schedulers."""

    def __init__(self, setup: ArmSetup, requests: RequestTable, tape: Tape, streams: Streams, leap: bool) -> None:
        self.env, self._ledger = simpy.Environment(), Ledger(requests)
        self._setup, self._tape, self._streams, self._leap = setup, tape, streams, leap
        self._servers: list[tuple[Recorder, Scheduler]] = []

    def server(self, number: int) -> Server:
        """Another server, like the others; its K rule learns from its own requests."""
        setup, table, recorder = self._setup, self._ledger.table, Recorder(self._ledger, number)
        rule, switching = bind_rule(setup, table, self._tape, self._streams), setup.arm.k_rule.switching
        config, stops = setup.scheduler_config, switching.drafter_stops
        if setup.engine.async_scheduling:
            ahead = OverlappedScheduler(config, table, self._tape, rule, stops)
            self._servers.append((recorder, ahead))
            return OverlappedServer(self.env, ahead, setup.cost, setup.drafter, recorder, switching=switching)
        scheduler = Scheduler(config, table, self._tape, rule, stops)
        self._servers.append((recorder, scheduler))
        return Server(self.env, scheduler, setup.cost, setup.drafter, recorder, self._leap, switching)

    def record(self) -> RunRecord:
        """Let time pass until nothing happens any more; what was written down."""
        self.env.run()
        for _, scheduler in self._servers:
            scheduler.check()
        return assemble(self._ledger, self._servers)
