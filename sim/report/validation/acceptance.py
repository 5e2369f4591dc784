"""Pictures of the page `acceptance`: tokens per step over K, and what each further draft brings."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sim.report.validation.canvas import MEASURED, SERIES, Picture, Sheet, end_labels, name_panel
from sim.validation.acceptance import DataSet, Part, Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours of the models; what a half itself measured is drawn as the data, paler.
_COLORS = dict(zip(("regime", "ngram_markov", "i.i.d."), (SERIES[0], SERIES[0], SERIES[1]), strict=True))


def acceptance_pictures(sets: Sequence[DataSet]) -> Iterator[Picture]:
    """All of the page: `acceptance-curves`, `acceptance-errors`."""
    if sets:
        alt = "Tokens per step and what each further draft adds, recorded and predicted, by data set and method."
        yield Picture("acceptance-curves", alt, _curves(sets))


def _curves(sets: Sequence[DataSet]) -> str:
    title = (
        "Black: recorded, with one standard error. Lines: models fitted to the other half, or to other text; "
        "dashed: to this very text."
    )
    sheet = Sheet(2 * len(sets), 2, 2.3, title=title)
    for index, one in enumerate(sets):
        steps, gains = sheet.panels[2 * index : 2 * index + 2]
        part = one.halves[0] if one.halves else one.whole
        shown = [score for score in part.scores if score.model.split()[0] in _COLORS]
        name_panel(steps, f"{one.name}, {one.method}", "tokens per step against K, bonus token included")
        name_panel(gains, f"{one.name}, {one.method}", "tokens that the K-th draft adds: acceptance by position")
        _panel(steps, part, shown, gains=False)
        _panel(gains, part, shown, gains=True)
    return sheet.svg()


def _panel(axes: "Axes", part: Part, shown: Sequence[Score], *, gains: bool) -> None:
    measured, errors = part.measured.tokens_per_step, part.errors.tokens_per_step
    ks = np.arange(1, len(measured) + 1)
    ends = []
    for score in shown:
        values, color = score.expected.tokens_per_step, _COLORS[score.model.split()[0]]
        style = "--" if score.in_sample else "-"
        values = np.diff(values, prepend=1.0) if gains else values
        axes.plot(ks, values, style, color=color)
        ends.append((float(values[-1]), score.model.replace("_markov", ""), color))
    if gains:
        axes.plot(ks, np.diff(measured, prepend=1.0), "o", color=MEASURED, markersize=3.6)
        axes.set_ylim(bottom=0)
    else:
        axes.errorbar(ks, measured, errors, fmt="o", color=MEASURED, markersize=3.6, linewidth=1.0)
    axes.set_xticks(ks)
    axes.yaxis.set_major_formatter("{x:.2f}")
    if not gains:
        end_labels(axes, ends)
