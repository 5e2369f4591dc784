"""The best K by batch size: closed form, checked and corrected by simulation, then run against every alternative."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sim.errors import ScenarioError
from sim.experiment.axes import CONCURRENCY
from sim.experiment.engine_export import ENGINES, Table, export, vllm_config
from sim.experiment.evaluate import Evaluator
from sim.experiment.explain import demand_of
from sim.experiment.files import json_bytes, write_bytes
from sim.experiment.k_check import (
    ORACLE,
    PLAIN,
    TABLE,
    Judge,
    best_simulated,
    check_loads,
    closed_loop,
    fixed_arm,
    fixed_name,
)
from sim.experiment.k_prices import Tunable, covered_ks, settled
from sim.experiment.k_regret import simulated_document, verdict_of
from sim.experiment.k_table import (
    Ints,
    KRange,
    Rates,
    best_ks,
    closed_at,
    corrected,
    k_at,
    ranges_of,
    widened,
)
from sim.experiment.regret import same_but_for_k
from sim.experiment.results import load
from sim.experiment.rounds import HowToRun, Work
from sim.experiment.run import run
from sim.scenario.arms import Arm
from sim.scenario.build import ArmSetup, resolved, set_up
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario
from sim.scenario.suggestions import no_such_arm

Json = dict[str, Any]

#: The file in the results folder.
NAME = "k_schedule.json"
#: Contexts of `--over context`: the workload's mean times these.
CONTEXT_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Wish:
    """What to tune.

    Attributes:
        arm: whose K; None = the only arm that drafts a chain.
        ks: K to choose from, ascending.
        judge: objective, replicates, ties, confidence.
        min_range: fewest batch sizes of a range.
        by_context: tabulate K by context too.
        loads: concurrencies to simulate; None = a handful.
        target: engine and version to write for; others get the newest form known.
    """

    arm: str | None
    ks: tuple[int, ...]
    judge: Judge
    min_range: int
    by_context: bool = False
    loads: tuple[int, ...] | None = None
    target: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Tuned:
    """The answer: what `k_schedule.json` holds, and the results folder of the check (None without simulations)."""

    document: Json
    run_dir: Path | None


def tune_k(loaded: LoadedScenario, wish: Wish, work: Work | None) -> Tuned:
    """Choose K for every batch size.

    Args:
        loaded: the question.
        wish: what to choose from, and how.
        work: how to simulate; None = the closed form alone.

    Raises:
        ScenarioError: no such arm, its K cannot be tuned, or its acceptance says nothing about any K.
        RunFailedError, StorageError, Interrupted: as `Evaluator` and `run`.
    """
    case = _case(loaded, wish)
    notes = [f"K above {case.ks[-1]}: the acceptance says nothing about it"] if case.ks != wish.ks else []
    notes += [f"{key} is not varied here" for key in loaded.scenario.sweep.vary if key != CONCURRENCY]
    plain = _plain(loaded.scenario, loaded.base_dir)
    context = demand_of(loaded.scenario, loaded.base_dir, resolved(plain.engine.max_model_len)).decode_context_tokens
    rates = settled(case, plain, context, wish.judge.tie)
    ks = widened(rates, best_ks(rates, wish.judge.tie), wish.min_range)
    largest = int(rates.batches[-1])
    loads = _loads(wish, ranges_of(ks, rates.batches), largest)
    found: list[tuple[int, int]] = []
    if work is not None:
        with work.workers() as executor:
            evaluator = Evaluator(executor, loaded.base_dir)
            ranges = ranges_of(ks, rates.batches)
            found = best_simulated(loaded, case, ranges, loads, wish.judge, evaluator)
    final = widened(rates, corrected(ks, rates.batches, found), wish.min_range)
    table = closed_at(ranges_of(final, rates.batches), resolved(plain.engine.max_num_seqs))
    document = _document(case, wish, rates, ks, final, table) | {"context_tokens": context, "notes": notes}
    document |= {"by_context": _by_context(case, plain, context, wish)} if wish.by_context else {}
    return _checked(loaded, case, wish, work, table, loads, document | {"simulated_best": [list(one) for one in found]})


def _case(loaded: LoadedScenario, wish: Wish) -> Tunable:
    scenario = loaded.scenario
    arms = [name for name, arm in scenario.arms.items() if arm.speculates]
    if wish.arm is not None and (unknown := no_such_arm([wish.arm], scenario.arms)):
        raise ScenarioError("\n".join(unknown))
    if not arms or (wish.arm is not None and wish.arm not in arms):
        found = "no arm speculates" if wish.arm is None else f"{wish.arm} does not speculate"
        raise ScenarioError(f"{found}; K belongs to an arm that does")
    case = Tunable(scenario, wish.arm or arms[0], loaded.base_dir, wish.ks)
    if wish.arm is None and len({same_but_for_k(scenario.arms[name]) for name in arms}) > 1:
        raise ScenarioError(f"several arms speculate; choose one with --arm: {', '.join(arms)}")
    return replace(case, ks=covered_ks(case))


def _plain(scenario: Scenario, base_dir: Path) -> ArmSetup:
    return set_up(scenario.model_copy(update={"arms": {PLAIN: Arm()}}), PLAIN, base_dir)


def _loads(wish: Wish, ranges: Sequence[KRange], largest: int) -> tuple[int, ...]:
    if wish.loads is None:
        return check_loads(ranges, largest)
    if wish.loads[-1] > largest:
        raise ScenarioError(f"--concurrency {wish.loads[-1]}: at most {largest} requests fit at the mean context")
    return wish.loads


def _document(case: Tunable, wish: Wish, rates: Rates, ks: Ints, final: Ints, table: Sequence[KRange]) -> Json:
    speedup = (rates.of(final) / rates.plain).tolist()
    closed = ranges_of(ks, rates.batches)
    config = case.config
    stated = config.model_dump(mode="json", exclude_none=True, exclude_defaults=True) | {"method": config.method}
    own = Table(stated, tuple(table), _fixed_k(rates))
    return {
        "arm": case.arm,
        "method": case.config.method,
        "objective": wish.judge.objective,
        "tie": wish.judge.tie,
        "min_range": wish.min_range,
        "ks": list(case.ks),
        "largest_batch": int(rates.batches[-1]),
        "ranges": [[one.first, one.last, one.k] for one in table],
        "closed_form": {
            "ranges": [[one.first, one.last, one.k] for one in closed],
            "speedup": [{"batch": b, "k": k_at(table, b), "speedup": speedup[b - 1]} for b in _shown(rates, table)],
            "k0_cost": _k0_cost(rates),
        },
        "fixed_k": own.fixed_k,
        "speculative_config": vllm_config(own) if own.most else None,
        "emit": {engine: _emitted(own, engine, wish.target) for engine in ENGINES},
    }


def _emitted(table: Table, engine: str, target: tuple[str, str] | None) -> Json:
    version = target[1] if target is not None and target[0] == engine else None
    found = export(table, engine, version)
    return {"version": found.version, "text": found.text, "settings": found.settings, "notes": list(found.notes)}


def _fixed_k(rates: Rates) -> int:
    """The best single K: highest mean log rate, every doubling of the batch counting the same."""
    mean = (np.log(rates.rate) / rates.batches[:, None]).sum(axis=0)
    return int(rates.ks[int(np.argmax(mean))])


def _k0_cost(rates: Rates) -> Json | None:
    """What a drafter that is loaded but drafts nothing costs, as a share of plain decoding's rate: least and most."""
    if rates.ks[0] != 0:
        return None
    lost = 1.0 - rates.rate[:, 0] / rates.plain
    return {"least": float(lost.min()), "most": float(lost.max())}


def _shown(rates: Rates, table: Sequence[KRange]) -> list[int]:
    """Batch sizes for a printed table: the ends of every range."""
    last = int(rates.batches[-1])
    return sorted({min(end, last) for one in table for end in (one.first, one.last)})


def _by_context(case: Tunable, plain: ArmSetup, context: int, wish: Wish) -> list[Json]:
    """Ranges at several contexts; neighbouring contexts with the same table are one."""
    longest = resolved(plain.engine.max_model_len) - 1
    contexts = sorted({min(longest, max(1, round(context * factor))) for factor in CONTEXT_FACTORS})
    rows: list[Json] = []
    for first, at in zip([1, *(round(math.sqrt(a * b)) + 1 for a, b in pairwise(contexts))], contexts, strict=True):
        rates = settled(case, plain, at, wish.judge.tie)
        ranges = ranges_of(widened(rates, best_ks(rates, wish.judge.tie), wish.min_range), rates.batches)
        found = [[one.first, one.last, one.k] for one in ranges]
        if rows and rows[-1]["ranges"] == found:
            rows[-1]["contexts"].append(at)
        else:
            rows.append({"first_context": first, "contexts": [at], "ranges": found})
    return rows


def _checked(
    loaded: LoadedScenario,
    case: Tunable,
    wish: Wish,
    work: Work | None,
    table: Sequence[KRange],
    loads: Sequence[int],
    document: Json,
) -> Tuned:
    """The table run against plain decoding and fixed K; everything in one results folder."""
    if work is None:
        closed = [row["speedup"] for row in document["closed_form"]["speedup"]]
        return Tuned(document | {"verdict": verdict_of(closed, [], wish.judge.tie), "simulated": None}, None)
    own = case.config.num_speculative_tokens
    ks = sorted({one.k for one in table} | {document["fixed_k"]} | ({own} & set(case.ks)))
    arms = {fixed_name(k): fixed_arm(case, k) for k in ks}
    most = max([one.k for one in table if one.k], default=max(1, min(filter(None, case.ks))))
    arms[TABLE] = case.arm_with(most, [(one.first, one.last, one.k) for one in table])
    arms[ORACLE] = case.oracle()
    asked = closed_loop(loaded, arms, loads, wish.judge)
    run_dir = run(asked, work.out_dir, progress=work.progress, how=HowToRun(work.workers))
    simulated = simulated_document(load(run_dir).document()["summary"], wish.judge)
    verdict = verdict_of([], simulated["loads"], wish.judge.tie)
    tuned = document | {"verdict": verdict, "simulated": simulated}
    write_bytes(run_dir / NAME, json_bytes(tuned))
    return Tuned(tuned, run_dir)
