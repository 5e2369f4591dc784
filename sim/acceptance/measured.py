"""`measured`: what a server reported, read from its file; the best model that the data allow."""

from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import ConfigDict, Field

from sim.acceptance.base import ACCEPTANCE, AcceptanceModel, Floats, Streams, Tape
from sim.acceptance.depth import DepthRates
from sim.acceptance.iid import Iid
from sim.acceptance.per_depth import PerDepth
from sim.acceptance.server_reports import ServerReport, read_server_report
from sim.acceptance.spread import LogitNormalSpread, logistic, logit, quantile_nodes
from sim.theory import alpha_from_tokens, bisect
from sim.workload.requests import RequestTable

#: Requests needed before a spread between them is believed.
_REQUESTS = 20
_LARGEST_SD = 3.0
_SMALLEST_SD = 0.02


@ACCEPTANCE.register
class Measured(AcceptanceModel):
    """A server's own report: per-request stats of vLLM, the JSON of `vllm bench serve`, or a server log.

    Rates by depth where the file has them, else one rate solved from the mean length (bonus token included); from 20
    requests on also how requests differ (logit-normal, beyond sampling noise). K is that of the measurement or less: at
    less, the first drafts of a step are a few per cent more likely than measured. Reports count steps with drafts only:
    for n-gram, steps without a match are missing, so replay tokens instead.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "measured", "path": "acceptance.jsonl"}]})

    kind: Literal["measured"] = "measured"
    path: str = Field(min_length=1, description="JSON, JSON lines or log of a server; gzip unpacked")

    def located(self, base_dir: Path) -> Self:
        """With `path` made absolute, relative to the scenario's folder."""
        return self.model_copy(update={"path": str((base_dir / self.path).resolve())})

    def report(self) -> ServerReport:
        """What the file says.

        Raises:
            ScenarioError: the file cannot be used, see `read_server_report`.
        """
        return read_server_report(Path(self.path))

    def check_files(self) -> None:
        """Read the report."""
        self.report()

    def model(self) -> DepthRates:
        """The kind that draws the tape."""
        return _model(self.report())

    def origin(self) -> str:
        """What was found in the file and what was made of it."""
        report, model = self.report(), self.model()
        spread = getattr(model, "request_spread", None)
        told = f", request spread {spread.sd:.2f} logits" if isinstance(spread, LogitNormalSpread) else ""
        requests = f" of {len(report.request_means)} requests" if len(report.request_means) else ""
        return f"{report.form}{requests}, K={report.num_draft_tokens}{told}"

    def max_supported_draft_tokens(self) -> int:
        """The K of the measurement."""
        return self.report().num_draft_tokens

    def survival(self, max_draft_tokens: int) -> Floats:
        """Exact, from the model."""
        self.check_draft_tokens(max_draft_tokens)
        return self.model().survival(max_draft_tokens)

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Draw the tape of the model."""
        self.check_draft_tokens(max_draft_tokens)
        return self.model().tape(requests, max_draft_tokens, streams)


@lru_cache(maxsize=8)
def _model(report: ServerReport) -> DepthRates:
    if report.conditional is None:
        return Iid(rate=alpha_from_tokens(report.tokens_per_step, report.num_draft_tokens))
    between = between_requests(report.request_means, report.request_variances, report.request_steps)
    if between <= 0.0:
        return PerDepth(rates=tuple(report.conditional.tolist()))
    return with_spread(report.conditional, between)


def between_requests(means: Floats, variances: Floats, steps: Floats) -> float:
    """Variance of the accepted drafts per step over requests beyond what their own steps explain; 0 for few requests.

    Args:
        means: (R,) drafts accepted per step of each request.
        variances: (R,) of its steps around its mean.
        steps: (R,) their number; requests of one step do not count.
    """
    several = steps > 1
    if several.sum() < _REQUESTS:
        return 0.0
    noise = variances[several] / (steps[several] - 1)
    return max(float(means[several].var(ddof=1) - noise.mean()), 0.0)


def with_spread(conditional: Floats, between: float) -> PerDepth:
    """Rates by depth with a logit-normal spread of this variance between requests, pooled rates kept."""

    def excess(sd: float) -> float:
        found = _centred(conditional, sd).request_rates(quantile_nodes()[0], len(conditional))
        tokens = np.multiply.accumulate(found, axis=1).sum(axis=1)
        weights = quantile_nodes()[1]
        return float(weights @ tokens**2 - (weights @ tokens) ** 2 - between)

    sd = bisect(excess, _SMALLEST_SD, _LARGEST_SD, steps=24)
    return _centred(conditional, sd)


def _centred(conditional: Floats, sd: float) -> PerDepth:
    """Rates whose pooled steps, with the spread, have the given conditional rates."""
    wanted, moved = logit(np.clip(conditional, 1e-6, 1 - 1e-6)), np.zeros(len(conditional))
    spread = LogitNormalSpread(sd=sd)
    for _ in range(12):
        model = PerDepth(rates=tuple(logistic(wanted + moved).tolist()), request_spread=spread)
        pooled = model.survival(len(conditional))
        reached = np.concatenate(([1.0], pooled[:-1]))
        moved = moved + wanted - logit(np.clip(pooled / reached, 1e-9, 1 - 1e-9))
    return PerDepth(rates=tuple(logistic(wanted + moved).tolist()), request_spread=spread)
