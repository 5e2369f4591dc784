"""Colours, markers and axes shared by all figures. Figures carry light colours; the page maps them to dark ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

import plotly.graph_objects as go

from sim.report.axis import Axis, say_value
from sim.report.palette import DARK, FONT, GRID, INK, LIGHT, LOSS, MUTED
from sim.report.reader import Results

_SYMBOLS = ("circle", "diamond", "triangle-up", "square", "cross", "star", "triangle-down", "hexagon")
_DASHES = ("solid", "solid", "dash", "dashdot", "longdash", "dash", "dashdot", "longdash")

#: parts of a step, with the drafter first and loudest
PARTS: dict[str, tuple[str, str, str]] = {
    "draft": ("drafting", "#d55e00", "#ff9a52"),
    "linear": ("linear layers", "#0072b2", "#56b4e9"),
    "attention": ("attention", "#5fb0de", "#b5def5"),
    "lm_head": ("LM head and sampling", "#007f5f", "#2fc79b"),
    "collective": ("all-reduce", "#a3478a", "#e59bc4"),
    "fixed": ("launch and small kernels", "#b9a44c", "#d9c978"),
    "host": ("host (CPU)", "#9aa3ad", "#737d89"),
}
#: parts of the GPU memory
MEMORY: dict[str, tuple[str, str, str]] = {
    "target_weights": ("target weights", "#0072b2", "#56b4e9"),
    "drafter_weights": ("drafter weights", "#d55e00", "#ff9a52"),
    "activations": ("activations", "#b9a44c", "#d9c978"),
    "graphs": ("CUDA context and graphs", "#a3478a", "#e59bc4"),
    "kv_pool": ("KV cache", "#007f5f", "#2fc79b"),
    "unused": ("left free", "#d5d9de", "#434b56"),
}


@dataclass(frozen=True, slots=True)
class ArmStyle:
    """How one arm looks in every figure."""

    color: str
    dark: str
    symbol: str
    dash: str

    @property
    def band(self) -> str:
        """Fill of the confidence band."""
        return _alpha(self.color, 0.18)


def arm_styles(results: Results) -> dict[str, ArmStyle]:
    """A style for each arm; they repeat after eight, and nobody compares nine."""
    return {
        arm: ArmStyle(*(series[index % len(LIGHT)] for series in (LIGHT, DARK, _SYMBOLS, _DASHES)))
        for index, arm in enumerate(results.arms)
    }


def dark_colors() -> dict[str, str]:
    """Light colour -> dark colour, for every colour that figures use."""
    pairs = list(zip(LIGHT, DARK, strict=True))
    pairs += [(light, dark) for _, light, dark in (*PARTS.values(), *MEMORY.values())]
    pairs += [(_alpha(light, 0.18), _alpha(dark, 0.22)) for light, dark in zip(LIGHT, DARK, strict=True)]
    pairs += [(INK, "#e8ebef"), (MUTED, "#9aa4b1"), (GRID, "#2b323b"), (LOSS, "#3a2418"), ("#ffffff", "#171b21")]
    return dict(pairs)


def templates() -> dict[str, dict[str, Any]]:
    """The plotly templates, hoisted once: figures carry none."""
    return {
        "light": _template(INK, MUTED, GRID, "#c3c9d1"),
        "dark": _template("#e8ebef", "#9aa4b1", "#2b323b", "#4a5360"),
    }


def _template(ink: str, muted: str, grid: str, line: str) -> dict[str, Any]:
    axis = {
        "gridcolor": grid, "linecolor": line, "tickcolor": line, "zeroline": False, "showline": True,
        "ticks": "outside", "ticklen": 4, "automargin": True,
        "title": {"standoff": 10, "font": {"size": 13, "color": muted}},
    }  # fmt: skip
    layout = {
        "font": {"family": FONT, "size": 13, "color": ink}, "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)", "xaxis": axis, "yaxis": axis, "hovermode": "closest",
        "hoverlabel": {"font": {"family": FONT, "size": 13}, "align": "left"}, "separators": ".\u202f",
        "annotationdefaults": {"font": {"size": 12, "color": muted}, "showarrow": False},
        "margin": {"l": 64, "r": 16, "t": 16, "b": 52}, "showlegend": False, "barcornerradius": 2,
    }  # fmt: skip
    return {"layout": layout}


def figure(height: int = 400) -> go.Figure:
    """An empty figure; the page gives it a template."""
    return go.Figure(layout={"height": height})


def load_axis(axis: Axis, values: Sequence[Any]) -> dict[str, Any]:
    """Layout of the x axis of a sweep: log2 when the loads are positive and spread, ticks at the tested loads."""
    if not axis.numeric:
        return {"type": "category", "title": {"text": axis.label}}
    known = sorted({float(value) for value in values})
    log = known[0] > 0 and known[-1] / known[0] >= 8
    base: dict[str, Any] = {"title": {"text": axis.label + (", log scale" if log else "")}}
    if not log:
        return base
    ticks = _thinned(known)
    pad = (known[-1] / known[0]) ** 0.035
    span = [log10(known[0] / pad), log10(known[-1] * pad)]
    return base | {"type": "log", "tickvals": ticks, "ticktext": [say_value(v) for v in ticks], "range": span}


def _thinned(values: Sequence[float]) -> list[float]:
    """Values whose labels do not touch on a log axis; the first and the last always stay."""
    least = max(1.06, (values[-1] / values[0]) ** 0.045)
    kept = [values[0]]
    for value in values[1:]:
        if value / kept[-1] >= least:
            kept.append(value)
    if kept[-1] != values[-1]:
        kept[-1] = values[-1]
    return kept


def _alpha(color: str, alpha: float) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"
