"""Statements that circulate about speculative decoding, each beside the value computed here."""

from collections.abc import Iterator
from dataclasses import dataclass

from sim.theory.tokens import acceptance_rate, expected_tokens, lock_step_accepted
from sim.verification.chain import Chain, block_of, total_variation
from sim.verification.membership import Membership
from sim.verification.rejection_sampling import RejectionSampling

#: (K, alpha, claimed tokens per step)
_CLAIMS = ((5, 0.6, 2.31), (5, 0.7, 2.77), (5, 0.8, 3.69), (5, 0.9, 4.69), (4, 0.6, 1.9), (8, 0.8, 4.0))
_TOY = ((0.5, 0.3, 0.2), (0.2, 0.6, 0.2))


@dataclass(frozen=True, slots=True)
class Erratum:
    """One statement.

    Attributes:
        statement: as it circulates.
        verdict: `right`, `wrong`, `not in general` or `contradictory`.
        correct: what holds, with the computed figures.
        value: the one figure that answers the statement; None where it takes several.
    """

    statement: str
    verdict: str
    correct: str
    value: float | None = None


def errata() -> tuple[Erratum, ...]:
    """All of them, computed now."""
    return (*_token_claims(), _formula(), _worthless_drafts(), _membership(), _rate_is_alpha(), _means(), _lock_step())


def _token_claims() -> Iterator[Erratum]:
    for k, alpha, claimed in _CLAIMS:
        value = expected_tokens(alpha, k)
        digits = len(f"{claimed:g}".partition(".")[2]) or 1
        right = round(value, digits) == claimed
        elsewhere = [n for n in range(1, 17) if round(expected_tokens(alpha, n), digits) == claimed]
        hint = f"; {claimed:.{digits}f} is the value of K = {elsewhere[0]}" if elsewhere and not right else ""
        text = f"{value:.4f} tokens per step, {value - 1:.4f} of them accepted drafts{hint}"
        statement = f"K = {k}, alpha {alpha:g}: {claimed:.{digits}f} tokens per step"
        yield Erratum(statement, "right" if right else "wrong", text, value)


def _formula() -> Erratum:
    alpha, k = 0.6, 4
    false = sum(alpha**i for i in range(1, k + 1)) + alpha**k
    value = expected_tokens(alpha, k)
    text = f"sum of a^i over i = 0..K. At alpha {alpha:g}, K = {k}: {value:.4f}, that formula gives {false:.4f}"
    return Erratum("tokens per step = sum of a^i over i = 1..K, plus a^K", "wrong", text, value)


def _worthless_drafts() -> Erratum:
    """At alpha = 0 the time of a step over plain decoding is 1 + K c when memory-bound, K + 1 when compute-bound."""
    costs = {c: [1.0 + k * c for k in (3, 5, 8)] for c in (0.02, 0.05, 0.1, 0.2)}
    table = "; ".join(f"c = {c:g}: {' / '.join(f'{cost:.2f}' for cost in row)}" for c, row in costs.items())
    text = f"1 + K c times as long where memory-bound (K = 3 / 5 / 8: {table}), K + 1 or more where compute-bound"
    return Erratum("useless drafts (alpha = 0) cost less than 10 %", "not in general", text)


def _membership() -> Erratum:
    chain = Chain.repeated(*_TOY, 1)
    lossy, exact = Membership(top_k=2).outcome(chain), RejectionSampling().outcome(chain)
    distance = total_variation(lossy.output, block_of(chain.target))
    output = ", ".join(f"{p:.2f}" for p in lossy.first_token)
    text = (
        f"p = (0.5, 0.3, 0.2), q = (0.2, 0.6, 0.2), accepted if in the target's top 2: the output is ({output}), TV "
        f"{distance:.2f} from p; acceptance {lossy.acceptance:.2f} instead of {exact.acceptance:.2f} without loss"
    )
    statement = "speculation never changes the output, drafts in the target's top k are accepted"
    return Erratum(statement, "contradictory", text, distance)


def _rate_is_alpha() -> Erratum:
    alpha, k = 0.8, 5
    rate = acceptance_rate(alpha, k)
    text = f"accepted over drafted is (tokens per step - 1) / K: alpha {alpha:g} at K = {k} shows a rate of {rate:.4f}"
    return Erratum("the acceptance rate of the server log is alpha", "wrong", text, rate)


def _means() -> Erratum:
    k, alphas = 5, (0.5, 0.9)
    each = [expected_tokens(alpha, k) for alpha in alphas]
    server = len(each) / sum(1.0 / tokens for tokens in each)
    text = (
        f"alpha 0.5 and 0.9 in equal lengths, K = {k}: tokens of the mean alpha {expected_tokens(0.7, k):.4f}, mean of "
        f"the tokens {sum(each) / len(each):.4f}, but a server emits {server:.4f} per step (harmonic mean)"
    )
    return Erratum("tokens per step follow from the mean alpha of the traffic", "wrong", text, server)


def _lock_step() -> Erratum:
    alone, batch = (lock_step_accepted(0.8, 5, n) for n in (1, 8))
    text = (
        f"nobody waits, a batch emits the sum: {alone:.3f} accepted per request (alpha 0.8, K = 5), not {batch:.3f}, "
        "the minimum over 8 requests"
    )
    return Erratum("a batch advances by the shortest accepted run of its requests", "wrong", text, alone)
