"""How many replicas carry a given load within the SLO: simulated behind the router, not divided."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.experiment.capacity_search import enough_requests
from sim.experiment.capacity_setting import Setting
from sim.experiment.carried import Judgement
from sim.experiment.evaluate import Evaluator
from sim.metrics.summary import Row

#: Most replicas that a scenario may have.
MOST_REPLICAS = 1024
#: Fleets are long runs: so many replicates of each.
FLEET_REPLICATES = 3


@dataclass(frozen=True, slots=True)
class Tried:
    """One fleet: its rows by replicate, and whether the load was carried, in each replicate and on the whole."""

    replicas: int
    rows: Mapping[int, Row]
    by_replicate: Mapping[int, Judgement]

    @property
    def carried_by(self) -> int:
        """How many replicates carried the load."""
        return sum(one == "carried" for one in self.by_replicate.values())

    @property
    def carried(self) -> bool:
        """Whether most replicates carried the load."""
        return 2 * self.carried_by > len(self.by_replicate)

    @property
    def too_short(self) -> bool:
        """Whether the load was not carried, and not missed either, in most replicates."""
        missed = sum(one == "missed" for one in self.by_replicate.values())
        return not self.carried and 2 * missed < len(self.by_replicate)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The smallest fleet of an arm.

    Attributes:
        expected: replicas from the capacity of one server.
        replicas: the smallest number that was seen to carry the load; None when more than `MOST_REPLICAS` are needed,
            or a run was too short to tell.
        by_replicate: the same for each replicate alone; None where it was not found next to the answer.
        tried: every fleet that was simulated, smallest first.
    """

    expected: int
    replicas: int | None
    by_replicate: Mapping[int, int | None]
    tried: tuple[Tried, ...]


def smallest_fleet(
    setting: Setting, evaluator: Evaluator, arm: str, load: float, capacity: float, in_system: float
) -> Fleet:
    """Simulate fleets from what the capacity of one server promises, up or down, until one more or fewer changes it.

    Args:
        setting: the question; its scenario's `replicas` make up one unit.
        evaluator: runs the fleets.
        arm: whose fleet.
        load: to be carried by all replicas together.
        capacity: load that one unit carries.
        in_system: requests in one unit at that load.
    """
    unit = setting.loaded.scenario.replicas
    expected = max(1, math.ceil(load / capacity * unit))
    tried: dict[int, Tried] = {}
    replicas = min(expected, MOST_REPLICAS)
    requests = enough_requests([load / capacity * in_system])
    while 1 <= replicas <= MOST_REPLICAS and replicas not in tried:
        tried[replicas] = _try(setting, evaluator, arm, load, replicas, requests)
        if tried[replicas].too_short:
            break
        replicas += -1 if tried[replicas].carried else 1
    known = not any(fleet.too_short for fleet in tried.values())
    found = [number for number, fleet in tried.items() if fleet.carried and known]
    numbers = range(min(setting.replicates, FLEET_REPLICATES))
    return Fleet(
        expected,
        min(found, default=None),
        {
            rep: min((n for n, fleet in tried.items() if known and fleet.by_replicate[rep] == "carried"), default=None)
            for rep in numbers
        },
        tuple(tried[number] for number in sorted(tried)),
    )


def _try(setting: Setting, evaluator: Evaluator, arm: str, load: float, replicas: int, requests: int) -> Tried:
    cell = setting.axis.cell(setting.loaded, load, num_requests=setting.num_requests(requests, load), replicas=replicas)
    numbers = range(min(setting.replicates, FLEET_REPLICATES))
    rows = evaluator.runs([cell], [arm], numbers)[cell.cell_id, arm]
    return Tried(replicas, rows, {rep: setting.limits.judged(row) for rep, row in rows.items()})


def saved(ours: Fleet, theirs: Fleet, gpus: int) -> Sequence[int]:
    """GPUs that one fleet needs fewer than another, replicate by replicate, where both are known."""
    pairs = ((ours.by_replicate[rep], theirs.by_replicate.get(rep)) for rep in ours.by_replicate)
    return [(b - a) * gpus for a, b in pairs if a is not None and b is not None]
