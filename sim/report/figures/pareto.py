"""Panel 4: tokens per second per user against tokens per second per GPU, the picture capacity planners compare."""

from sim.bench_results.base import MeasuredPoint
from sim.report.axis import Axis, Cell, Slice, say_value
from sim.report.figures.measured import READING, Mark, add_marks, marks
from sim.report.panel import Chart, Panel, Table, View
from sim.report.reader import Results
from sim.report.style import arm_styles, figure
from sim.report.wording import factor, number, plain

_DEFINITION = (
    "Speed per user is 1000 / median TPOT in ms: how fast one user sees text after the first token. Output tokens "
    "per second per GPU is the output throughput divided by the number of GPUs. Numbers beside the points are the "
    "load. The line joins the loads in order."
)


def panel(results: Results) -> Panel | None:
    """Both axes from zero; None when the columns are missing."""
    if not {"tok_s_user_median", "output_tok_s_gpu"} <= set(results.summary.columns):
        return None
    styles = arm_styles(results)
    views = [_view(results, part) for part in results.slices]
    reading = "Up and to the right is better." + (" Each point is one load, named beside it." if results.axis else "")
    reading += READING if _measured(results) else ""
    legend = [(arm, styles[arm]) for arm in results.arms]
    return Panel("pareto", "Speed per user against throughput", views, reading, _DEFINITION, "Where", legend=legend)


def _view(results: Results, part: Slice) -> View:
    styles, plot = arm_styles(results), figure(460)
    rows: list[list[str | float | None]] = []
    curves: dict[str, list[tuple[float, float]]] = {}
    for arm, style in styles.items():
        points = [point for cell in part.cells for point in _points(results, cell, arm)]
        texts = [say_value(cell.x) if cell.x is not None else plain(arm) for cell, *_ in points]
        plot.add_scatter(
            x=[user for _, user, _, _ in points], y=[gpu for _, _, gpu, _ in points],
            text=[f"  {text}  " if text else "" for text in _labels(texts)],
            mode="lines+markers+text", textposition="top right" if arm != results.baseline else "middle left",
            textfont={"size": 11, "color": style.color}, line={"color": style.color, "width": 2, "dash": style.dash},
            marker={"size": 9, "symbol": style.symbol, "color": style.color}, cliponaxis=False,
            customdata=[_tip(results.axis, arm, *point) for point in points],
            hovertemplate="%{customdata}<extra></extra>", legendgroup=plain(arm), name=plain(arm),
        )  # fmt: skip
        rows += [[cell.x if cell.x is not None else arm, arm, user, gpu, float(n)] for cell, user, gpu, n in points]
        curves[arm] = [(user, gpu) for _, user, gpu, _ in points]
    found = _measured(results)
    add_marks(plot, results, found, "output tokens/s per GPU")
    rows += [[str(point.load), f"{arm} (measured)", user, gpu, None] for arm, point, user, gpu in found]
    everything = curves | {"measured": [(user, gpu) for *_, user, gpu in found]}
    plot.update_layout(
        xaxis={"title": {"text": "Speed per user (tokens/s, median)"}, "range": _span(everything, 0)},
        yaxis={"title": {"text": "Output tokens/s per GPU"}, "range": _span(everything, 1)},
    )
    head = [
        results.axis.short if results.axis else "cell",
        "arm",
        "tokens/s per user",
        "output tokens/s per GPU",
        "runs",
    ]
    return View(part.label, _finding(results.baseline, curves), [Chart(plot)], Table(head, rows))


def _measured(results: Results) -> list[Mark]:
    """Load tests that report both a median TPOT and a throughput."""
    levels = [results.level(cell, results.baseline, "num_gpus") for cell in results.done]
    num_gpus = next((level.mean for level in levels if level is not None), 1.0)

    def user(point: MeasuredPoint) -> float | None:
        tpot = point.metrics.get("median_tpot_ms")
        return None if tpot is None else 1e3 / tpot

    def gpu(point: MeasuredPoint) -> float | None:
        throughput = point.metrics.get("output_throughput")
        return None if throughput is None else throughput / num_gpus

    return marks(results, user, gpu)


def _points(results: Results, cell: Cell, arm: str) -> list[tuple[Cell, float, float, int]]:
    user, gpu = results.level(cell, arm, "tok_s_user_median"), results.level(cell, arm, "output_tok_s_gpu")
    return [(cell, user.mean, gpu.mean, user.n)] if user and gpu else []


def _span(curves: dict[str, list[tuple[float, float]]], place: int) -> list[float]:
    """From zero, with room for the labels."""
    return [0, 1.1 * max((point[place] for points in curves.values() for point in points), default=1.0)]


def _labels(texts: list[str]) -> list[str]:
    """Every other point, and always the first and the last."""
    return [text if index % 2 == 0 or index == len(texts) - 1 else "" for index, text in enumerate(texts)]


def _tip(axis: Axis | None, arm: str, cell: Cell, user: float, gpu: float, n: int) -> str:
    where = f"{plain(axis.say(cell.x))}<br>" if axis else ""
    return (
        f"<b>{plain(arm)}</b><br>{where}{number(user)} tokens/s per user<br>{number(gpu)} output tokens/s per GPU"
        f"<br>n = {n} replicates"
    )


def _finding(baseline: str, curves: dict[str, list[tuple[float, float]]]) -> str:
    """The fastest speed per user and the highest throughput per GPU, and who reaches them."""
    known = {arm: points for arm, points in curves.items() if points}
    if not known:
        return "No results to compare"
    fast = {arm: max(user for user, _ in points) for arm, points in known.items()}
    dense = {arm: max(gpu for _, gpu in points) for arm, points in known.items()}
    quick, busy = max(fast, key=fast.__getitem__), max(dense, key=dense.__getitem__)
    ratio = f", {factor(fast[quick] / fast[baseline])} {baseline}" if baseline in fast and quick != baseline else ""
    if quick == busy:
        return f"{quick} reaches both the fastest user ({number(fast[quick])} tokens/s{ratio}) and the most per GPU"
    return (
        f"{quick} gives the fastest user ({number(fast[quick])} tokens/s{ratio}), "
        f"{busy} the most per GPU ({number(dense[busy])} tokens/s)"
    )
