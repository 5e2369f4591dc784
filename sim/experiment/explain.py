"""Everything the bound cost model says about a scenario without simulating it: the content of `specsim explain`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.acceptance.base import AcceptanceModel, Floats
from sim.cost.base import BoundCost
from sim.cost.passes import verify_pass
from sim.cost.roofline import Roofline
from sim.deployment import Deployment
from sim.errors import CapacityError, ScenarioError
from sim.experiment.analytic import AnalyticCurve, analytic_curve, analytic_document, why_not
from sim.experiment.capacity import memory_of
from sim.experiment.explanation import (
    Acceptance,
    ArmFacts,
    BreakEven,
    Cost,
    Demand,
    Deployed,
    Explanation,
    Ranges,
)  # fmt: skip
from sim.experiment.landmarks import kv_equals_weights, prefill_of, ridge_tokens
from sim.experiment.step_table import Grid, step_tables
from sim.hardware.profile import CALIBRATED, SAME_GENERATION, find_profile, profile_ids
from sim.rng import Streams
from sim.scenario.arms import Arm
from sim.scenario.build import ArmSetup, resolved, set_up
from sim.scenario.defaults import CONCURRENCY_KEY
from sim.scenario.load import LoadedScenario
from sim.scenario.preset_report import preset_lines
from sim.scenario.schema import Scenario
from sim.speculation.base import SpeculationMethod
from sim.theory.crossings import crossings
from sim.theory.spellings import from_survival

#: Batches of the table when the sweep does not vary the concurrency.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: Rows of one table; each takes about 0.1 ms.
MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What to tabulate; None: batches of the sweep or powers of two, K from 0 on, the workload's mean context."""

    batches: tuple[int, ...] | None = None
    ks: tuple[int, ...] | None = None
    contexts: tuple[int, ...] | None = None


def explain(loaded: LoadedScenario, asked: Asked) -> Explanation:
    """Explain every arm of a scenario.

    Raises:
        ScenarioError: a name is unknown, or a context exceeds what the engine takes.
        CapacityError: an arm does not fit.
    """
    scenario, base_dir = loaded.scenario, loaded.base_dir
    setups = {name: _bound(scenario, name, base_dir) for name in scenario.arms}
    base = setups[scenario.baseline]
    plain = base if not base.arm.speculates else _plain(scenario, base_dir)
    demand = demand_of(scenario, base_dir, resolved(base.engine.max_model_len))
    grid = _grid(scenario, asked, base, demand)
    deployment = base.deployment
    return Explanation(
        name=scenario.name,
        baseline=scenario.baseline,
        deployed=_deployed(deployment),
        demand=demand,
        cost=_cost(scenario, base),
        varied=tuple(key for key in scenario.sweep.vary if key != CONCURRENCY_KEY),
        engine=preset_lines(scenario),
        notes=loaded.notes,
        arms=tuple(_arm(name, setups, scenario, demand, grid.contexts) for name in setups),
        tables=step_tables(setups, plain, grid),
        ridge_tokens=ridge_tokens(base.cost.target),
        kv_equals_weights=tuple(kv_equals_weights(base.cost.target, batch) for batch in grid.batches),
    )  # fmt: skip


def _deployed(deployment: Deployment) -> Deployed:
    tp, target = deployment.tensor_parallel_size, deployment.target
    held = target.expert_shape(tp, expert_parallel=True).held if deployment.expert_parallel else None
    formats = (deployment.weight_dtype, deployment.kv_cache_dtype)
    return Deployed(deployment.gpu.name, tp, target.name, *formats, experts_per_gpu=held)


def _bound(scenario: Scenario, name: str, base_dir: Path) -> ArmSetup:
    try:
        return set_up(scenario, name, base_dir)
    except CapacityError as error:
        raise CapacityError(f"arms.{name}: {error}") from error


def _plain(scenario: Scenario, base_dir: Path) -> ArmSetup:
    """Plain decoding in a scenario whose baseline speculates itself."""
    return set_up(scenario.model_copy(update={"arms": {"plain": Arm()}}), "plain", base_dir)


def _grid(scenario: Scenario, asked: Asked, setup: ArmSetup, demand: Demand) -> Grid:
    """What to tabulate, defaults filled in."""
    longest = resolved(setup.engine.max_model_len)
    contexts = asked.contexts or (demand.decode_context_tokens,)
    if asked.contexts and max(contexts) >= longest:
        raise ScenarioError(f"context {max(contexts)}: allowed: below engine.max_model_len = {longest}")
    batches = asked.batches or _swept_batches(scenario) or BATCHES
    rows = len(batches) * len(asked.ks or ()) * len(contexts)
    if rows > MAX_ROWS:
        raise ScenarioError(f"{rows} batches x K x contexts; allowed: at most {MAX_ROWS}; ask for fewer of them")
    return Grid(batches, asked.ks, contexts)


def _swept_batches(scenario: Scenario) -> tuple[int, ...]:
    return tuple(sorted({int(value) for value in scenario.sweep.vary.get(CONCURRENCY_KEY, ())}))


def decode_context(loaded: LoadedScenario) -> int:
    """Context that a decode step of the baseline meets, in tokens: the mean over output tokens."""
    baseline = set_up(loaded.scenario, loaded.scenario.baseline, loaded.base_dir)
    limit = resolved(baseline.engine.max_model_len)
    return demand_of(loaded.scenario, loaded.base_dir, limit).decode_context_tokens


def demand_of(scenario: Scenario, base_dir: Path, max_model_len: int) -> Demand:
    """Means of the workload; the mean decode context is that of the requests of replicate 0, as a run measures it."""
    facts = scenario.workload.facts(base_dir)
    table = scenario.what_if.requests(scenario.workload.requests(Streams(scenario.seed), base_dir))
    prompt = table.prompt_tokens.astype(np.float64)
    output = np.clip(max_model_len - prompt, 0.0, table.output_tokens)
    total = max(float(output.sum()), 1.0)
    context = float((output * (prompt + (output - 1.0) / 2.0)).sum()) / total
    shared = 0.0 if table.prefixes is None else float(table.prefixes.tokens.sum() / prompt.sum())
    means = (facts.mean_prompt_tokens, facts.mean_output_tokens, shared)
    return Demand(facts.num_requests, *means, max(1, round(context)))


def _cost(scenario: Scenario, setup: ArmSetup) -> Cost:
    cost, profile = setup.cost, setup.cost.profile.partition("/")[0]
    fitted = scenario.cost_model.kind == "roofline" and profile in profile_ids()
    return Cost(
        kind=scenario.cost_model.kind,
        profile=cost.profile,
        relative_error=cost.relative_error,
        trust=trust(cost.relative_error),
        covers=find_profile(profile).fit_range if fitted else "",
        host_base_ms=cost.host.base_s * 1e3,
        host_per_request_ms=cost.host.per_request_s * 1e3,
        host_overlapped=resolved(setup.engine.async_scheduling),
        engine=(scenario.cost_model.engine or "vllm") if isinstance(scenario.cost_model, Roofline) else "",
        draft_launch_ms=cost.draft_launch_s * 1e3,
        draft_token_us=_draft_token_s(cost) * 1e6,
    )


def trust(relative_error: float) -> str:
    """The badge of a cost profile."""
    if relative_error <= 0:
        return "exact"
    steps = ((CALIBRATED, "calibrated"), (SAME_GENERATION, "same generation"))
    return next((word for limit, word in steps if relative_error <= limit), "uncertain")


def _draft_token_s(cost: BoundCost) -> float:
    """What one draft token costs beyond being a token: the same pass with three of its tokens marked and with one.

    Both verify, so what a verifying pass costs at all, and a factor on it, are not taken for the token's. Neither marks
    the two that are drafts, so no engine runs one of the passes as a batch of drafts and the other as a prompt.
    """
    two = verify_pass(1, 1, 2)
    one, three = (cost.target.price(two._replace(num_draft_tokens=drafts)).seconds for drafts in (1, 3))
    return (three - one) / 2


def _arm(
    name: str, setups: Mapping[str, ArmSetup], scenario: Scenario, demand: Demand, contexts: Sequence[int]
) -> ArmFacts:
    setup, drafter = setups[name], setups[name].deployment.drafter
    config = setup.arm.speculative_config.model_dump(mode="json", exclude_none=True)
    opted_out = any(not traffic.speculate for traffic in scenario.workload.classes)
    curves = [] if name == scenario.baseline else list(contexts)
    return ArmFacts(
        name=name,
        speculates=setup.arm.speculates,
        speculative_config=config,
        drafter=None if drafter is None else drafter.name,
        verification=setup.arm.rule.kind if setup.arm.speculates else None,
        lossless=setup.arm.lossless,
        host_memory_bytes=setup.arm.speculative_config.host_memory_bytes(demand.mean_output_tokens),
        drafts_nothing_at=_without_drafts(setup) if setup.arm.speculative_config.num_draft_passes(0) else (),
        acceptance=_acceptance(setup),
        memory=memory_of(setup, contexts),
        prefill=prefill_of(setup, max(1, round(demand.mean_prompt_tokens))),
        break_even=tuple(_break_even(setup, setups[scenario.baseline], context, opted_out) for context in curves),
    )


def _without_drafts(setup: ArmSetup) -> tuple[tuple[int, int], ...]:
    """Batch sizes (first, last) at which the arm's table says K = 0."""
    table = setup.arm.k_rule.table(setup.arm.speculative_config.max_draft_tokens)
    if table is None:
        return ()
    most = max(resolved(setup.engine.max_num_seqs), table.first[-1])
    ends = [*(first - 1 for first in table.first[1:]), most]
    return tuple((first, last) for first, last, k in zip(table.first, ends, table.k, strict=True) if k == 0)


def _acceptance(setup: ArmSetup) -> tuple[Acceptance, ...]:
    arm, method = setup.arm, setup.arm.speculative_config
    k = method.max_draft_tokens
    if arm.acceptance is None or not k:
        return ()
    models: dict[str, AcceptanceModel] = {"": arm.acceptance, **arm.class_acceptance}
    rates = {name: method.survival(model, k) for name, model in models.items()}
    return tuple(_spelt(method, name, model, setup.what_if.survival(rates[name])) for name, model in models.items())


def _spelt(method: SpeculationMethod, traffic: str, model: AcceptanceModel, survival: Floats) -> Acceptance:
    spelt = from_survival(survival)
    return Acceptance(
        traffic=traffic,
        kind=model.kind,
        profile=model.origin(),
        tokens_per_step=spelt.tokens_per_step,
        acceptance_rate=method.accepted_share(spelt.accepted_per_step),
        alpha=spelt.alpha if method.one_alpha else None,
        rates=spelt.marginal,
        conditional_rates=spelt.conditional,
    )


def _break_even(setup: ArmSetup, baseline: ArmSetup, context: int, opted_out: bool) -> BreakEven:
    reason = "a traffic class does not speculate" if opted_out else why_not(setup) or why_not(baseline)
    if reason:
        return BreakEven(context, {}, None, None, (), (), (), reason)
    curve = analytic_curve(setup, baseline, context)
    drawn = ("batch", "speedup", "band_low", "band_high")
    document = {key: value for key, value in analytic_document(curve).items() if key not in drawn}
    pays, if_slower, if_faster = (_paying(curve, edge) for edge in (curve.speedup, curve.band_low, curve.band_high))
    return BreakEven(context, document, _at(curve, 0), _at(curve, -1), pays, if_slower, if_faster, "")


def _at(curve: AnalyticCurve, index: int) -> tuple[float, float, float]:
    return float(curve.speedup[index]), float(curve.band_low[index]), float(curve.band_high[index])


def _paying(curve: AnalyticCurve, speedup: NDArray[np.float64]) -> Ranges:
    """Ranges of batches with a speed-up above 1."""
    turns = [found.value for found in crossings(curve.batch.tolist(), np.log(speedup).tolist())]
    signs = np.sign(speedup - 1.0)
    starts_above = bool(signs[signs != 0][:1] > 0)
    ends = [*([1.0] if starts_above else []), *turns]
    ends += [float(curve.batch[-1])] if len(ends) % 2 else []
    return tuple(zip(ends[::2], ends[1::2], strict=True))
