"""Shares of drafting, verification and overhead in the time of batches of clones, against the published ones."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from sim.scenario.load import load_mapping
from sim.validation.cases import CaseBuilder
from sim.validation.harness.clones import clone_shares
from sim.validation.published import PublishedRow
from sim.validation.scores import SHARES, Score
from sim.validation.shipped import ShareRow, share_rows

#: A mean that every K allows, where no sequences are at hand: shares hardly depend on it.
_ANY_LENGTH = 2.0
#: Plain decoding is the plain arm of this one.
_PLAIN_OF = ("n-gram", "3")


def score_shares(rows: Sequence[PublishedRow], folder: Path) -> list[Score]:
    """Shares of the sources and models that the folder has rows of."""
    known, builder = {(row.source, row.target_model) for row in rows}, CaseBuilder(rows, folder)
    return [
        score
        for shares in share_rows()
        if (shares.source, shares.target_model) in known
        for score in _scores(shares, builder)
    ]


def _scores(shares: ShareRow, builder: CaseBuilder) -> Iterator[Score]:
    case, arm = builder.case(_as_row(shares)), "plain" if shares.method == "plain" else "spec"
    tokens = None if case.recorded else _ANY_LENGTH
    ours, naive = (
        clone_shares(load_mapping(case.scenario(tokens, naive=x)).scenario, arm, case.recorded) for x in (False, True)
    )
    group = f"{shares.source}: {shares.target_model}, {shares.gpu}, {shares.engine}"
    for quantity, part in zip(SHARES, ("draft", "verify", "overhead"), strict=True):
        yield Score(
            name=f"{shares.method} batch {shares.batch}", group=group, quantity=quantity, load=str(shares.batch),
            predicted=getattr(ours, part), measured=getattr(shares, part) / 100, naive=getattr(naive, part),
        )  # fmt: skip


def _as_row(shares: ShareRow) -> PublishedRow:
    """The case that the shares were measured in."""
    method, k = _PLAIN_OF if shares.method == "plain" else (shares.method, shares.k_or_tree)
    return PublishedRow(
        case_id=f"shares {shares.method} {shares.batch}", source=shares.source, table="time shares",
        target_model=shares.target_model, gpu=shares.gpu, n_gpus=str(shares.n_gpus), engine=shares.engine,
        method=method, k_or_tree=k, dataset=shares.dataset, input_len=shares.input_len, output_len="",
        load=str(shares.batch),
        metric="", notes="", acceptance_rate="", temperature="", plain_value=None, spec_value=None, speedup=None,
        tokens_per_step=None, trust=shares.trust,
    )  # fmt: skip
