"""A sheet of panels, drawn with matplotlib: the only file that imports it.

matplotlib is an extra (`pip install 'specsim[plots]'`); without it pages are written without pictures. Text stays text
in the SVG, set in the reader's own sans-serif and laid out by the metrics of matplotlib's own font, so that neither
depends on the machine.
"""

import importlib.util
import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.report.palette import FONT, GRID, INK, LIGHT, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

#: Width of every picture: 900 pixels on a page.
WIDTH_INCHES = 9.375
_TITLE_INCHES = 0.3
_LABEL_INCHES = 0.13
#: Colours of measured and predicted, of the band around a prediction, and of series beside each other.
MEASURED, PREDICTED, OTHER, GOOD = INK, LIGHT[1], LIGHT[2], "#dbeee7"
SERIES = (LIGHT[1], LIGHT[2], LIGHT[3], LIGHT[4], LIGHT[5], LIGHT[6], LIGHT[7], LIGHT[0])

_FACE = "DejaVu Sans"
#: Places in the file, and their decimals beyond a hundredth of a point.
_PLACES, _DECIMALS = re.compile(r' (?:d|x|y)="[^"]*"'), re.compile(r"(\.\d\d)\d+")
_STYLE: dict[Any, Any] = {
    "font.family": [_FACE], "font.size": 8.5, "svg.fonttype": "none", "svg.hashsalt": "specsim", "text.color": INK,
    "axes.edgecolor": "#c3c9d1", "axes.labelcolor": MUTED, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.7, "xtick.color": MUTED, "ytick.color": MUTED,
    "xtick.labelsize": 7.5, "ytick.labelsize": 7.5, "axes.labelsize": 8.0, "lines.linewidth": 1.4,
    "path.simplify": False,
}  # fmt: skip


def can_draw() -> bool:
    """Whether pictures can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


class Picture(NamedTuple):
    """A picture of a page.

    Attributes:
        name: of its file, without ending.
        alt: what it shows, for those who do not see it.
        svg: the file.
    """

    name: str
    alt: str
    svg: str


def write_pictures(pictures: Iterable[Picture], folder: Path) -> dict[str, str]:
    """Write SVG files to `folder`/pictures; name -> Markdown that shows it on a page in `folder`."""
    there = folder / "pictures"
    there.mkdir(exist_ok=True)
    shown = {}
    for picture in pictures:
        (there / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
        shown[picture.name] = f"![{picture.alt}](pictures/{picture.name}.svg)"
    return shown


class Sheet:
    """Panels of one size in rows.

    Args:
        panels: how many.
        columns: in a row.
        height: of a row, inches.
        widths: of the columns, relative; by default equal.
        title: one line above all of them: what is drawn, and how.
    """

    def __init__(
        self, panels: int, columns: int, height: float, widths: Sequence[float] | None = None, *, title: str = ""
    ) -> None:
        import matplotlib
        from matplotlib.figure import Figure

        rows = -(-panels // columns)
        self._style = matplotlib.rc_context(_STYLE)
        with self._style:
            size = WIDTH_INCHES, height * rows + (_TITLE_INCHES if title else 0.0)
            self.figure: Figure = Figure(figsize=size, layout="constrained", facecolor="white")
            grid = self.figure.subplots(rows, columns, squeeze=False, width_ratios=widths)
            if title:
                self.figure.suptitle(title, x=0.005, ha="left", fontsize=8.5, color=MUTED)
        everyone: list[Axes] = list(grid.flat)
        for axes in everyone[panels:]:
            axes.set_axis_off()
        self.panels: list[Axes] = everyone[:panels]

    def svg(self) -> str:
        """The drawing; without date and version, so that the same figures give the same bytes."""
        import matplotlib

        out = io.StringIO()
        with matplotlib.rc_context(_STYLE):
            for line in (line for axes in self.panels for line in axes.lines):
                line.recache(always=True)  # paths are made anew, under a style that keeps points of no length
            self.figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        text = _PLACES.sub(lambda found: _DECIMALS.sub(r"\1", found[0]), out.getvalue()).replace(f"'{_FACE}'", FONT)
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def log_ticks(axes: "Axes", values: Sequence[float], which: str = "x") -> None:
    """A log axis with ticks at the given values, written as plain numbers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_ticks(list(values), labels=[_plain(value) for value in values])
    axis.set_ticks([], minor=True)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def thinned(values: Sequence[float], least: float) -> list[float]:
    """Ascending values that are at least this factor apart; the largest always stays."""
    kept: list[float] = []
    for value in sorted(set(values), reverse=True):
        if not kept or kept[-1] / value >= least:
            kept.append(value)
    return kept[::-1]


def name_panel(axes: "Axes", *lines: str) -> None:
    """The heading of a panel, the first line in ink and the others paler."""
    axes.set_title("\n".join(lines), loc="left", fontsize=7.8, color=INK, linespacing=1.25)


def end_labels(axes: "Axes", ends: Sequence[tuple[float, str, str]]) -> None:
    """Names of lines to the right of a panel, moved apart where they would touch; call it when the limits are set.

    Args:
        axes: the panel.
        ends: (y where the line ends, name, colour).
    """
    low, high = axes.get_ylim()
    inches = axes.get_window_extent().height / axes.figure.dpi
    least, last = _LABEL_INCHES / inches, -1.0
    for y, text, color in sorted(ends):
        place = max((y - low) / (high - low), last + least)
        last = place
        axes.annotate(text, (1.0, place), xycoords="axes fraction", xytext=(3, 0), textcoords="offset points",
                      color=color, fontsize=7.3, va="center", annotation_clip=False)  # fmt: skip


def draw_dots(axes: "Axes", xs: Floats, ys: Floats, color: str, size: float = 3.0) -> None:
    """Many dots as one path of points with round ends: a marker each would make the file several times as long."""
    gaps = np.full(xs.shape, np.nan)
    both = (np.stack([values, values, gaps]).T.ravel() for values in (xs, ys))
    axes.plot(*both, "-", color=color, alpha=0.7, linewidth=size, solid_capstyle="round")


def decades(low: float, high: float) -> list[float]:
    """Ticks for a log axis: powers of ten, with 2 and 5 between them where they are few; tenths where it is short."""
    if high / low < 2.5:
        return thinned([tenth / 10 for tenth in range(math.ceil(10 * low), math.floor(10 * high) + 1)], 1.08)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1.0,) if len(powers) > 4 else (1.0, 2.0, 5.0) if len(powers) > 2 else (1.0, 1.5, 2.0, 3.0, 5.0)
    return [value for power in powers for step in steps if low <= (value := step * 10.0**power) <= high]
