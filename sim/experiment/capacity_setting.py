"""What is asked of a capacity search: the SLO, the load and how sure the answer has to be."""

from dataclasses import dataclass

from sim.errors import Problem, ScenarioError
from sim.experiment.carried import Limits
from sim.experiment.load_axis import LoadAxis
from sim.scenario.load import LoadedScenario
from sim.scenario.slo import Slo

#: Loads worth trying where the user states no range.
RANGES = {"request_rate": (1e-4, 1e5), "concurrency": (1.0, 4096.0)}


@dataclass(frozen=True, slots=True)
class Setting:
    """One question.

    Attributes:
        loaded: the scenario, with the SLO in it.
        limits: the SLO.
        axis: which load.
        range: lowest and highest load to try.
        confidence: of intervals.
        tolerance: how closely a capacity is bracketed, relative to it.
        half_width: of its interval, relative to it: replicates are added until it is this narrow.
        replicates: of the first round.
        max_replicates, max_points: where the search stops all the same.
    """

    loaded: LoadedScenario
    limits: Limits
    axis: LoadAxis
    range: tuple[float, float]
    confidence: float = 0.95
    tolerance: float = 0.05
    half_width: float = 0.1
    replicates: int = 5
    max_replicates: int = 10
    max_points: int = 24

    @property
    def chooses_length(self) -> bool:
        """Whether the search decides how many requests a run has."""
        return self.loaded.scenario.workload.num_requests is None and self.axis.arrivals["kind"] != "trace"

    def num_requests(self, automatic: int, load: float) -> int | None:
        """How many requests a run has: the scenario's number, else `automatic`, and four rounds of a closed loop.

        None for traces that are replayed: their window decides.
        """
        workload = self.loaded.scenario.workload
        if self.axis.arrivals["kind"] == "trace":
            return workload.num_requests
        rounds = 4 * round(load) if self.axis.whole else 0
        return workload.num_requests or max(automatic, rounds)


def limits_of(slo: Slo | None) -> Limits:
    """The SLO of a scenario.

    Raises:
        ScenarioError: there is none.
    """
    if slo is None:
        message = "missing: state limits such as {ttft: 2000, tpot: 50}, the name of published ones, or --slo"
        raise ScenarioError([Problem("", "slo", message)])
    found = {"ttft": slo.ttft, "tpot": slo.tpot, "e2el": slo.e2el}
    return Limits({name: limit for name, limit in found.items() if limit is not None}, slo.percentile / 100)
