"""Looks for the highest load that each arm carries within an SLO.

First roughly, arm by arm and with one replicate (`bracketed`); then as an experiment in rounds over loads that all arms
share (`narrower`), so that what is left is the results folder of an ordinary sweep.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sim.experiment.capacity_setting import Setting
from sim.experiment.carried import Carried, Point, carried
from sim.experiment.compare import Runs
from sim.experiment.evaluate import Evaluator
from sim.experiment.load_axis import closed_cell
from sim.experiment.plan import Plan
from sim.experiment.search import more_replicates
from sim.metrics.summary import Row
from sim.scenario.build import resolved, set_up
from sim.scenario.schema import Scenario

#: Fewest measured requests that a 99th percentile may rest on, and what share of a run is measured at least.
MEASURED, SHARE_MEASURED = 1000, 1 - 1 / 3 - 1 / 20
FEWEST_REQUESTS = math.ceil(MEASURED / SHARE_MEASURED)
#: A run holds so many times the requests that are in the system at a time: enough to fill it, settle and measure.
TURNOVERS = 12
#: Requests of the run on an otherwise empty server.
ALONE_REQUESTS = 200
#: Users of the closed loop that tells about what rate an arm can serve at most.
MOST_USERS = 256
#: Loads of the rough search grow or shrink by this; so many steps at most.
STEP, MOST_STEPS = 1.5, 24
#: How often a run of the rough search is repeated with more requests when it was too short to tell.
MOST_EXTENSIONS = 3
#: Distance of the first points of the finer search, and how far it goes past an end that turns out to be open.
PAST_END = 1.25


@dataclass(frozen=True, slots=True)
class Rough:
    """What the rough search found about an arm.

    Attributes:
        alone: a run with one user: the latencies of an empty server.
        low, high: a load that was carried (0: none), and the next one, which was not (infinite: none).
        too_short: a load at which the run ended before it could tell (infinite: none).
        in_system: requests running or waiting at the lower load.
    """

    alone: Row
    low: float
    high: float
    too_short: float
    in_system: float


def bracketed(setting: Setting, evaluator: Evaluator, arm: str) -> Rough:
    """Bracket what an arm carries, by steps of a factor `STEP` with one replicate.

    An arm that misses the SLO on an empty server carries nothing: no load is tried.
    """
    alone = _row(evaluator, setting, arm, closed=1, num_requests=ALONE_REQUESTS)
    if setting.limits.margin(alone) < 0:
        return Rough(alone, 0.0, 0.0, math.inf, 0.0)
    load, low, in_system = _first_guess(setting, evaluator, arm), 0.0, 0.0
    high = too_short = math.inf
    for _ in range(MOST_STEPS):
        row = _long_enough(evaluator, setting, arm, load)
        judged = setting.limits.judged(row)
        if judged == "carried":
            low, in_system = load, _in_system(row)
        elif judged == "missed":
            high = load
        else:
            too_short = load
        end = min(high, too_short)
        if low and not math.isinf(end):
            break
        following = _step(setting, load, upwards=math.isinf(end))
        if following == load:
            break
        load = following
    return Rough(alone, low, high, too_short, in_system)


def _step(setting: Setting, load: float, *, upwards: bool) -> float:
    """The next load to try, inside of what the user allows."""
    least, most = setting.range
    if not setting.axis.whole:
        return min(max(load * STEP if upwards else load / STEP, least), most)
    following = math.ceil(load * STEP) if upwards else math.floor(load / STEP)
    return float(min(max(following, least, 1), most))


def _first_guess(setting: Setting, evaluator: Evaluator, arm: str) -> float:
    """The rate of a full closed loop; for concurrency, few users."""
    least, most = setting.range
    if setting.axis.whole:
        return max(least, min(8.0, most))
    engine = set_up(setting.loaded.scenario, arm, setting.loaded.base_dir).engine
    users = min(resolved(engine.max_num_seqs), MOST_USERS) * setting.loaded.scenario.replicas
    row = _row(evaluator, setting, arm, closed=users, num_requests=4 * users)
    return min(max(_float(row["request_throughput"]), least), most)


def _row(evaluator: Evaluator, setting: Setting, arm: str, *, closed: int, num_requests: int) -> Row:
    cell = closed_cell(setting.loaded, closed, num_requests)
    return evaluator.runs([cell], [arm], [0])[cell.cell_id, arm][0]


def _row_at(evaluator: Evaluator, setting: Setting, arm: str, load: float, num_requests: int) -> Row:
    """The row of one arm at one load, first replicate."""
    cell = setting.axis.cell(setting.loaded, load, num_requests=setting.num_requests(num_requests, load))
    return evaluator.runs([cell], [arm], [0])[cell.cell_id, arm][0]


def _long_enough(evaluator: Evaluator, setting: Setting, arm: str, load: float) -> Row:
    """The row of a run that can be judged; as long as the scenario says where it says so, longer ones otherwise."""
    requests = FEWEST_REQUESTS
    row = _row_at(evaluator, setting, arm, load, requests)
    for _ in range(MOST_EXTENSIONS):
        needed = enough_requests([_in_system(row)])
        if setting.limits.judged(row) != "too short" or needed <= requests or not setting.chooses_length:
            break
        requests = needed
        row = _row_at(evaluator, setting, arm, load, requests)
    return row


def _in_system(row: Row) -> float:
    return _float(row["mean_running"]) + _float(row["mean_waiting"])


def enough_requests(in_system: Iterable[float]) -> int:
    """Requests per run: enough for a 99th percentile, and for the system to fill many times over."""
    return max(FEWEST_REQUESTS, math.ceil(TURNOVERS * max(in_system, default=0.0)))


def first_loads(found: Iterable[Rough]) -> list[float]:
    """Both ends of every arm's rough bracket and a load in between; an open end is taken alone."""
    loads: list[float] = []
    for one in found:
        ends = [end for end in (one.low, min(one.high, one.too_short)) if end and not math.isinf(end)]
        loads += [*ends, math.sqrt(math.prod(ends))] if len(ends) == 2 else ends
    return loads


def narrower(setting: Setting, arms: Sequence[str], plan: Plan, runs: Runs) -> Scenario | None:
    """The next round: loads inside of brackets that are still wide, then more replicates; None when it is enough.

    Args:
        setting: the question.
        arms: those that carry anything at all.
        plan: the round that was run.
        runs: everything known.
    """
    sweep = plan.scenario.sweep
    tested = [float(value) for value in sweep.vary[setting.axis.key]]
    cells = [(cell.cell_id, float(cell.vary[setting.axis.key])) for cell in plan.cells]
    answers = [carried(points(setting, cells, runs, arm), setting.limits, setting.confidence) for arm in arms]
    wanted = {setting.axis.value(load) for one in answers for load in _new_loads(setting, one)}
    room = max(0, setting.max_points - len(tested))
    new = sorted(value for value in wanted if float(value) not in tested)[:room]
    if new:
        vary = {setting.axis.key: tuple(sorted([*sweep.vary[setting.axis.key], *new]))}
        return plan.scenario.model_copy(update={"sweep": sweep.model_copy(update={"vary": vary})})
    enough = max((_replicates(setting, one, sweep.replicates) for one in answers), default=0)
    enough = min(enough, setting.max_replicates)
    if enough <= sweep.replicates:
        return None
    return plan.scenario.model_copy(update={"sweep": sweep.model_copy(update={"replicates": enough})})


def points(setting: Setting, cells: Iterable[tuple[str, float]], runs: Runs, arm: str) -> list[Point]:
    """The tested loads of one arm in ascending order with its rows.

    Args:
        setting: the question.
        cells: each with the value of the varied field.
        runs: everything known.
        arm: which arm.
    """
    found = [(setting.axis.load(value), runs[cell, arm]) for cell, value in cells if (cell, arm) in runs]
    return sorted(found, key=lambda point: point[0])


def _new_loads(setting: Setting, found: Carried) -> set[float]:
    """The middle of every replicate's bracket that is too wide, or a load past its open end.

    A bracket need not be narrower than the replicates differ: in between the margin is interpolated.
    """
    loads: set[float] = set()
    wide = math.log1p(max(setting.tolerance, found.spread))
    for one in found.brackets:
        if one.low == 0.0:
            loads.add(one.high / PAST_END)
        elif one.open_end == "above":
            loads.add(one.low * PAST_END)
        elif math.log(one.high / one.low) > wide and (not setting.axis.whole or one.high - one.low > 1):
            loads.add(math.sqrt(one.low * one.high))
    least, most = setting.range
    return {min(max(load, least), most) for load in loads}


def _replicates(setting: Setting, found: Carried, replicates: int) -> int:
    """How many it takes for an interval as narrow as wished; an open end is no matter of replicates."""
    if found.open_end or found.half_width <= setting.half_width:
        return replicates
    return more_replicates(replicates, found.half_width / setting.half_width)


def _float(value: object) -> float:
    return float(str(value))
