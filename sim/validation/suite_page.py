"""Parts of the pages of `specsim validate server` and `speedup`: gates, summaries, figures, what was not run."""

from collections.abc import Iterable, Mapping, Sequence

from sim.validation.markdown import table
from sim.validation.scores import Gate, Score, Summary, summarise
from sim.validation.shipped import peer_error

#: Markdown of a page's pictures by their names; none are shown where they could not be drawn.
Pictures = Mapping[str, str]
NO_PICTURES: Pictures = {}

_BAR = 24  # characters from no error to the end of a bar
_BAR_PERCENT = 24.0


def gate_table(gates: Iterable[Gate]) -> str:
    """Targets with what was found, and what another simulator states."""
    rows = [[g.name, f"{g.limit:g}{g.unit}", _found(g), _peer(g.name), g.verdict] for g in gates]
    return table(["target", "limit", "found", "peer", "verdict"], rows)


def _found(gate: Gate) -> str:
    return "-" if gate.found is None else f"{gate.found:.3g}{gate.unit}"


def _peer(name: str) -> str:
    peer = peer_error(name.removesuffix(", mean"))
    return "" if peer is None else f"{peer.percent:g} % ({peer.peer})"


def summary_table(groups: Iterable[tuple[str, Sequence[Score]]]) -> str:
    """One row per group: points, mean absolute and signed error, worst, share in the band, naive, peer."""
    rows = [[name, *_summary(found)] for name, scores in groups if (found := summarise(scores))]
    return table(["what", "points", "MAPE", "bias", "worst", "in the band", "naive", "peer"], rows)


def _summary(found: Summary) -> list[str]:
    inside = "" if found.inside is None else f"{100 * found.inside:.0f} %"
    naive = "" if found.naive is None else f"{found.naive:.1f}"
    peer = "" if found.peer is None else f"{found.peer:.1f} (ours there {found.beside_peer:.1f})"
    return [str(found.points), f"{found.mape:.1f}", f"{found.bias:+.1f}", f"{found.worst:+.1f}", inside, naive, peer]


def score_table(scores: Sequence[Score]) -> str:
    """Every figure with its error as a number and as a bar."""
    head = ["case", "load", "what", "predicted", "measured", "error", "", "band", "naive", "peer", "remarks"]
    return table(head, [_score(score) for score in scores])


def _score(score: Score) -> list[str]:
    return [
        score.name, score.load, score.quantity, _number(score.predicted), _number(score.measured),
        f"{score.error:+.1f}", _bar(score.error), _band(score), _signed(score.naive_error), _signed(score.peer_error),
        score.remarks,
    ]  # fmt: skip


def _bar(error: float) -> str:
    """A bar to scale, `>` where it is cut off."""
    length = round(abs(error) / _BAR_PERCENT * _BAR)
    mark = "+" if error > 0 else "-"
    return "`" + (mark * _BAR + ">" if length > _BAR else mark * length or "|") + "`"


def _band(score: Score) -> str:
    if score.low is None or score.high is None:
        return ""
    where = "inside" if score.inside else "**outside**"
    return f"{_number(score.low)} to {_number(score.high)}: {where}"


def _signed(error: float | None) -> str:
    return "" if error is None else f"{error:+.1f}"


def _number(value: float) -> str:
    """Four digits, without exponents."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def reasons(not_run: Iterable[tuple[str, str]]) -> str:
    """What was not run, by reason: how many, and which."""
    names: dict[str, list[str]] = {}
    for name, reason in not_run:
        names.setdefault(reason, []).append(name)
    lines = [f"- {reason} ({len(found)}): {', '.join(found)}" for reason, found in sorted(names.items())]
    return "\n".join(lines) or "Everything was run."


def shown(pictures: Pictures, *names: str) -> str:
    """Pictures one below the other, those that are there."""
    return "\n\n".join(pictures[name] for name in names if name in pictures)


def page(*parts: str) -> str:
    """Parts of a page, one blank line apart."""
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
