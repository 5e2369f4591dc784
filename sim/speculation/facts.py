"""What is known of a method beyond what its spec computes; written beside the method, printed in docs/methods.md."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class TypicalAcceptance(NamedTuple):
    """A published figure; never a default of the simulation.

    Attributes:
        setting: target, drafter, K and text.
        tokens_per_step: mean tokens per verification step, the bonus token included.
        source: where it stands.
    """

    setting: str
    tokens_per_step: float
    source: str


@dataclass(frozen=True)
class MethodFacts:
    """Facts about a speculation method.

    Attributes:
        drafting: its passes, and the tokens in each.
        cpu: what the CPU does per step.
        acceptance_kinds: kinds of `acceptance` that describe it.
        engines: engine -> how it is switched on there, or that it is missing.
        sources: papers and engine files that the model follows.
        typical: published acceptance, with its setting; empty where no figure could be traced.
        remarks: what is simplified, one sentence each.
    """

    drafting: str
    cpu: str
    acceptance_kinds: tuple[str, ...]
    engines: Mapping[str, str]
    sources: tuple[str, ...]
    typical: tuple[TypicalAcceptance, ...] = ()
    remarks: tuple[str, ...] = field(default=())
