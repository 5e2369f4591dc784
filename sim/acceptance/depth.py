"""Kinds with one rate per draft depth (or one for all): shared tape and survivals. Not a kind of its own."""

import numpy as np
from pydantic import Field

from sim.acceptance.base import AcceptanceModel, Floats, Streams, Tape
from sim.acceptance.positions import Bools, Positions, leading_accepts
from sim.acceptance.spread import REQUEST_STREAM, RequestSpread, pooled_survival, quantile_nodes
from sim.workload.requests import RequestTable

#: Name of the stream with the one uniform per position that judges whatever draft sits there.
DEPTH_STREAM = "acceptance/depth"


class DepthRates(AcceptanceModel):
    """Draft d of a step is accepted with a rate that depends on d alone, given that all before it were."""

    def conditional_rates(self, max_draft_tokens: int) -> Floats:
        """q_d = P(draft d accepted | drafts before it accepted), shape (max_draft_tokens,)."""
        raise NotImplementedError

    def request_rates(self, uniform: Floats, max_draft_tokens: int) -> Floats:
        """Conditional rates of requests by their uniforms (N,): shape (N, K), or (1, K) when requests do not differ."""
        return self.conditional_rates(max_draft_tokens)[None, :]

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Draw the tape: one uniform per position against the rate of the depth that lands there."""
        self.check_draft_tokens(max_draft_tokens)
        positions = Positions(requests, max_draft_tokens)
        draws = positions.uniforms(streams, DEPTH_STREAM)
        rates = self.request_rates(streams.per_row(REQUEST_STREAM, len(requests)), max_draft_tokens)

        def accepted_at(depth: int) -> Bools:
            rate = rates[:, depth - 1]
            return draws < (rate if len(rate) == 1 else positions.per_row(rate))

        return Tape(positions.trim(leading_accepts(accepted_at, max_draft_tokens)))

    def survival(self, max_draft_tokens: int) -> Floats:
        """Exact: running products of the rates, pooled over requests by their number of steps."""
        self.check_draft_tokens(max_draft_tokens)
        nodes, weights = quantile_nodes()
        by_request = np.multiply.accumulate(self.request_rates(nodes, max_draft_tokens), axis=1)
        return by_request[0] if len(by_request) == 1 else pooled_survival(by_request, weights)


class SpreadDepthRates(DepthRates):
    """Rates by depth that may differ from request to request."""

    request_spread: RequestSpread | None = Field(
        default=None,
        description="How conditional rates vary over requests; their mean over requests stays. Default: they do not.",
    )

    def request_rates(self, uniform: Floats, max_draft_tokens: int) -> Floats:
        """Conditional rates (N, K) of requests by their uniforms, all depths moving together."""
        rates = self.conditional_rates(max_draft_tokens)
        return rates[None, :] if self.request_spread is None else self.request_spread.rates(uniform, rates)


def conditional_from_survival(survival: Floats) -> Floats:
    """q_d = s_d / s_(d-1), with 0 where nothing survives."""
    before = np.concatenate(([1.0], survival[:-1]))
    return np.divide(survival, before, out=np.zeros_like(survival), where=before > 0)
