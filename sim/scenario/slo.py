"""`slo:` of a scenario: limits, or the name of published ones."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sim.catalogue import Catalogue
from sim.errors import ScenarioError
from sim.spec import Spec
from sim.units import Milliseconds

PositiveMs = Annotated[Milliseconds, Field(gt=0)]


class Slo(Spec):
    """Latency objectives; a request is good when it meets all of them. At least one is needed.

    A name stands for published limits: `slo: mlperf/llama3.1-8b-interactive`; `specsim catalog slos` lists them.

    Attributes:
        percentile: share of requests, in percent, that must be good for the SLO to count as met.
    """

    ttft: PositiveMs | None = None
    tpot: PositiveMs | None = None
    e2el: PositiveMs | None = None
    percentile: Annotated[float, Field(gt=0, lt=100)] = 99.0


class PublishedSlo(Slo):
    """Limits that somebody published.

    Attributes:
        source: where.
        remark: what to know about them.
    """

    source: str
    remark: str


_SLOS = Catalogue("SLO", Path(__file__).parent / "data" / "slos", PublishedSlo)


def slo_ids() -> tuple[str, ...]:
    """Ids of the published SLOs, sorted."""
    return _SLOS.ids()


def find_slo(name: str) -> PublishedSlo:
    """The published SLO that `name` means; see `Catalogue.find`.

    Raises:
        ScenarioError: unknown or ambiguous; the message names the candidates.
    """
    return _SLOS.find(name)


def _by_name(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return find_slo(value).model_dump(exclude={"source", "remark"})
    except ScenarioError as error:
        raise ValueError(str(error)) from None


#: What a scenario writes under `slo`: limits, or a name.
SloChoice = Annotated[Slo, BeforeValidator(_by_name, json_schema_input_type=str | Slo)]
