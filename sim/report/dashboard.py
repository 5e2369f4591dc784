"""One self-contained HTML page from a results folder: no server, no network, plotly.js from the installed package."""

import base64
import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

from sim.bench_results.base import MeasuredPoint
from sim.experiment.files import write_bytes
from sim.report.figures import (
    acceptance,
    latency_cdf,
    loads,
    memory,
    pareto,
    regret,
    speedup,
    step_time,
    timeline,
    tornado,
)
from sim.report.figures.provenance import provenance_html, subtitle
from sim.report.figures.verdict import headline, verdict_html
from sim.report.panel import Panel, figures_of, panel_html
from sim.report.reader import Results, load_results
from sim.report.style import dark_colors, templates
from sim.report.wording import escape, plain

Plotlyjs = Literal["gzip", "inline"]

#: in the order of the page
PANELS: tuple[Callable[[Results], Panel | None], ...] = (
    tornado.panel, speedup.panel, loads.panel, pareto.panel, latency_cdf.panel, acceptance.panel, regret.panel,
    step_time.panel, timeline.panel, memory.panel,
)  # fmt: skip


def write_dashboard(
    run_dir: Path,
    out: Path | None = None,
    plotlyjs: Plotlyjs = "gzip",
    measured: Mapping[str, Sequence[MeasuredPoint]] | None = None,
) -> Path:
    """Build the page.

    Args:
        run_dir: a results folder.
        out: where to write; `run_dir/dashboard.html` when None.
        plotlyjs: `gzip` (2 MB, unpacked in the page) or `inline` (5 MB, for browsers without DecompressionStream).
        measured: load tests of a real server to draw as well, by arm.

    Returns:
        The path written.

    Raises:
        ResultsError: the folder is unreadable or unfinished, or the page cannot be written.
    """
    page = page_html(replace(load_results(Path(run_dir)), measured=measured or {}), plotlyjs)
    target = Path(out) if out is not None else Path(run_dir) / "dashboard.html"
    write_bytes(target, page.encode())
    return target


def page_html(results: Results, plotlyjs: Plotlyjs = "gzip") -> str:
    """The page as text."""
    panels = [panel for build in PANELS if (panel := build(results)) is not None]
    code, script = get_plotlyjs(), _asset("page.js")
    parts = {
        "title": escape(f"{results.name}: specsim"),
        "name": escape(results.name),
        "subtitle": escape(subtitle(results)),
        "csp": _csp(script, code),
        "style": _asset("style.css"),
        "body": verdict_html(results) + "".join(map(panel_html, panels)) + provenance_html(results),
        "description": escape(headline(results)),
        "data": embed_json(_payload(results, panels)),
        "plotly": _packed(code, plotlyjs),
        "script": script,
    }
    return _fill(_asset("page.html"), parts)


def _payload(results: Results, panels: list[Panel]) -> dict[str, Any]:
    """What the script needs: figures by element id, templates, colours, names of the arms."""
    figures = {name: figure.to_plotly_json() for panel in panels for name, figure in figures_of(panel).items()}
    for figure in figures.values():
        figure["layout"].pop("template", None)
    legends = {panel.key: [plain(arm) for arm, _ in panel.legend] for panel in panels}
    return {"figures": figures, "templates": templates(), "dark": dark_colors(), "legends": legends}


def embed_json(value: Mapping[str, Any]) -> str:
    """JSON that is safe inside a `<script>` element: no character can end it or open a comment."""
    text: str = to_json_plotly(value)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _csp(script: str, plotly: str) -> str:
    """Nothing may be fetched, and only our two scripts may run: they are named by their digests."""
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in (script, plotly))
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _packed(code: str, plotlyjs: Plotlyjs) -> str:
    """The element that carries plotly.js."""
    if plotlyjs == "inline":
        return f"<script>{code}</script>"
    return f'<script type="application/gzip" id="plotlyjs">{_gzipped(code)}</script>'


@lru_cache(maxsize=1)
def _gzipped(code: str) -> str:
    return base64.b64encode(gzip.compress(code.encode(), 9, mtime=0)).decode()


@lru_cache(maxsize=8)
def _asset(name: str) -> str:
    return (files("sim.report") / "page" / name).read_text(encoding="utf-8")


def _fill(template: str, parts: Mapping[str, str]) -> str:
    """Replace `{{name}}` marks in one pass, so that no value is scanned for marks again."""
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, rest = piece.split("}}", 1)
        filled += (parts[name], rest)
    return "".join(filled)
