"""How a load is written into a scenario: requests per second of an open loop, or users of a closed one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.errors import ScenarioError
from sim.experiment.axes import CONCURRENCY, REQUEST_RATE
from sim.scenario.cells import Cell, cell_scenarios
from sim.scenario.dump import plain_data
from sim.scenario.load import LoadedScenario, load_mapping
from sim.workload.arrivals.sessions import SessionArrivals

RATE_SCALE, SESSION_RATE = "workload.arrivals.rate_scale", "workload.arrivals.session_rate"
_ARRIVALS = "workload.arrivals."


@dataclass(frozen=True, slots=True)
class LoadAxis:
    """A load and the field that sets it.

    Attributes:
        name: `request_rate` or `concurrency`.
        unit: of a load.
        key: the dotted field.
        per_load: value of the field / load.
        arrivals: the arrival process, to be completed by the field.
    """

    name: str
    unit: str
    key: str
    per_load: float
    arrivals: Mapping[str, Any]

    @property
    def whole(self) -> bool:
        """Whole numbers only."""
        return self.name == "concurrency"

    def value(self, load: float) -> float | int:
        """What the field has to be: four digits, so that a load has one name."""
        return max(1, round(load)) if self.whole else float(f"{load * self.per_load:.4g}")

    def load(self, value: float) -> float:
        """The load that a value of the field stands for."""
        return value / self.per_load

    def varied(self, loaded: LoadedScenario, loads: list[float], **changes: Any) -> LoadedScenario:
        """The scenario with this load varied and nothing else.

        Args:
            loaded: the question.
            loads: to try.
            changes: other top-level keys; `num_requests` and `sweep` go where they belong.
        """
        values = sorted({self.value(load) for load in loads})
        data = self._data(loaded, changes)
        data["sweep"] |= {"vary": {self.key: values}, "combine": "grid"}
        data["workload"]["arrivals"] = {**self.arrivals, self.key.removeprefix(_ARRIVALS): values[-1]}
        return _again(data, loaded)

    def cell(self, loaded: LoadedScenario, load: float, **changes: Any) -> Cell:
        """One operating point; arguments as `varied`."""
        return cell_scenarios(self.varied(loaded, [load], **changes).scenario)[0]

    def _data(self, loaded: LoadedScenario, changes: Mapping[str, Any]) -> dict[str, Any]:
        data = plain_data(loaded.scenario)
        more = dict(changes)
        data["sweep"] |= more.pop("sweep", {"breakeven": None})
        num_requests = more.pop("num_requests", None)
        if num_requests is not None:
            data["workload"]["num_requests"] = num_requests
        return data | more


def closed_cell(loaded: LoadedScenario, max_concurrency: int, num_requests: int) -> Cell:
    """The same requests from so many users who never pause."""
    axis = LoadAxis("concurrency", "users", CONCURRENCY, 1.0, {"kind": "closed"})
    return axis.cell(loaded, max_concurrency, num_requests=num_requests)


def load_axis(loaded: LoadedScenario, name: str) -> LoadAxis:
    """The axis of this name for a scenario's arrivals; a closed loop turns into Poisson arrivals for `request_rate`.

    Raises:
        ScenarioError: sessions in a closed loop have no rate.
    """
    if name == "concurrency":
        return LoadAxis(name, "users", CONCURRENCY, 1.0, {"kind": "closed"})
    workload, arrivals = loaded.scenario.workload, loaded.scenario.workload.arrivals
    stated = plain_data(loaded.scenario)["workload"]["arrivals"]
    if stated["kind"] == "closed":
        return LoadAxis(name, "requests/s", REQUEST_RATE, 1.0, {"kind": "poisson"})
    if stated["kind"] == "trace":
        facts = workload.facts(loaded.base_dir)
        if not facts.trace_span_s:
            raise ScenarioError("workload.arrivals: the trace window has no length, so it has no rate to scale")
        return LoadAxis(name, "requests/s", RATE_SCALE, facts.trace_span_s / facts.trace_rows, stated)
    if isinstance(arrivals, SessionArrivals):
        if arrivals.session_rate is None:
            raise ScenarioError(
                "workload.arrivals.max_concurrent_sessions: closed sessions have no rate; state session_rate instead"
            )
        return LoadAxis(name, "requests/s", SESSION_RATE, 1.0 / arrivals.turns.mean_tokens(), stated)
    return LoadAxis(name, "requests/s", REQUEST_RATE, 1.0, stated)


def _again(data: Mapping[str, Any], loaded: LoadedScenario) -> LoadedScenario:
    found = load_mapping(data, loaded.base_dir)
    notes = tuple(dict.fromkeys((*loaded.notes, *found.notes)))
    return LoadedScenario(found.scenario, found.base_dir, loaded.source_text, notes)
