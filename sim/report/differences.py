"""Results folders against each other, as text: what moved, what is not resolved, and what the limits say."""

from collections import Counter
from collections.abc import Iterator, Sequence

from sim.experiment.differences import Comparison, Difference
from sim.experiment.thresholds import Judgement
from sim.metrics.statistics import Interval
from sim.report.plain_text import columns, number, printable, short
from sim.report.terminal import wrapped
from sim.report.wording import metric_unit

#: Widest name of an arm or an operating point in the table.
_WIDEST = 26


def comparison_text(
    comparison: Comparison, judgements: Sequence[Judgement], folders: Sequence[str], everything: bool
) -> str:
    """The comparison in full.

    Args:
        comparison: what was found.
        judgements: of the limits, empty without any.
        folders: names, the base first.
        everything: list also what is not resolved.
    """
    lines = [f"{letter} = {printable(name)}" for letter, name in zip(_letters(len(folders)), folders, strict=True)]
    lines += [line for note in comparison.notes for line in wrapped(printable(note), "")]
    for number_of, letter in enumerate(_letters(len(folders))[1:], 1):
        mine = [each for each in comparison.differences if each.folder == number_of]
        lines += ["", *_table(mine, letter, everything)]
    lines += ["", *_verdicts(judgements)] if judgements else []
    return "\n".join(line.rstrip() for line in lines)


def _letters(count: int) -> list[str]:
    return [chr(ord("A") + i) if i < 26 else f"folder {i + 1}" for i in range(count)]


def _table(differences: Sequence[Difference], letter: str, everything: bool) -> Iterator[str]:
    shown = [each for each in differences if everything or each.verdict not in ("not resolved", "same")]
    if shown:
        head = ["arm", "at", "metric", "", "A", letter, f"{letter} against A", ""]
        yield from columns([head, *map(_row, shown)], left=4)
    hidden = Counter(each.verdict for each in differences if each not in shown)
    counts = [f"{count} of {len(differences)} differences {_IS[verdict]}" for verdict, count in hidden.items()]
    if counts:
        yield from wrapped(f"{'; '.join(counts)}{'; --all lists them' if not everything else ''}", "")


_IS = {"not resolved": "are not resolved: their intervals cover 0", "same": "are exactly 0"}


def _row(found: Difference) -> list[str]:
    place = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in found.vary.items())
    verdict = f"{found.verdict}: {found.note}" if found.note else found.verdict
    cells = [short(printable(found.arm), _WIDEST), short(printable(place), _WIDEST), found.metric]
    return [*cells, metric_unit(found.metric), number(found.base_value), number(found.value), moved(found), verdict]


def moved(found: Difference) -> str:
    """`+3.1 % (+2.0 to +4.2)`; in the metric's unit where a relative change has no meaning."""
    if found.change is not None:
        return _signed(found.change, 100.0, " %")
    return _signed(found.difference, 1.0, "")


def _signed(interval: Interval, scale: float, unit: str) -> str:
    text = f"{_plus(interval.estimate * scale)}{unit}"
    if interval.low is None or interval.high is None:
        return text
    return f"{text} ({_plus(interval.low * scale)} to {_plus(interval.high * scale)})"


def _plus(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{number(abs(value))}"


def _verdicts(judgements: Sequence[Judgement]) -> Iterator[str]:
    """A line per limit, and below it where it failed or is open."""
    for text in dict.fromkeys(each.limit.text for each in judgements):
        mine = [each for each in judgements if each.limit.text == text]
        counts = Counter(each.state for each in mine)
        state = "FAILED" if counts["failed"] else "not resolved" if counts["not resolved"] else "held"
        yield f"{text}: {state} ({', '.join(f'{count} {name}' for name, count in counts.items())})"
        for each in mine:
            if each.state != "held":
                place = ", ".join(f"{key} {value}" for key, value in each.difference.vary.items())
                where = " at ".join(part for part in (each.difference.arm, place) if part)
                why = f"; {each.difference.note}" if each.difference.note else ""
                yield from wrapped(f"{each.state}: {printable(where)}: {_figure(each)}{why}", "  ")


def _figure(judgement: Judgement) -> str:
    found = judgement.difference
    if judgement.limit.relative:
        return _signed(found.change, 100.0, " %") if found.change else "no relative change: a value is not positive"
    return f"{_signed(found.difference, 1.0, '')} {metric_unit(found.metric)}".rstrip()
