"""The report of `specsim validate physics` as Markdown."""

from collections.abc import Iterable, Mapping, Sequence

from sim.calibration.fit import ErrorStats
from sim.validation.gates import Gate, gates
from sim.validation.physics import Comparison, Report, pooled
from sim.validation.servers import ServerRow, server_lines
from sim.validation.steps import StepErrors
from sim.validation.transfer import Transfer

_INTRODUCTION = """# Physics: predicted against measured times

Written by `specsim validate physics`. Mean / 95th percentile / worst absolute error in per cent.

- **shipped**: the profile as `profile: auto` takes it. *fitted* profiles were fitted on the public tables of this GPU
  (so this column is in-sample there), *borrowed* ones on another GPU: then nothing was fitted to these rows.
- **left out**: the same equations refitted on this table without the shape that is predicted (6 folds over weight
  shapes, head layouts, expert shapes, message sizes, chunk shapes, layers).
- **naive**: datasheet peaks, hard maximum, no fixed costs.
- **rows**: used, of those in the table. Not used: matrix products and experts of shapes that beat the datasheet
  bandwidth by more than 5 % (read from the L2 cache, or routed to fewer experts than stated), attention whose KV partly
  fits the L2 cache, NCCL's all-reduces, messages above 64 MiB (all-gather, all-to-all: 512 MiB). **all rows**: mean
  error of the shipped profile with those included. Experts spread whole over GPUs have a table of their own, in which
  nothing was fitted; its rows are those of the busiest GPU.
"""


_UNKNOWN = """**left out**: a joint fit to the kernels of the other architectures in this folder, every GPU with equal
weight, priced with the datasheet of this one: what a user with an unknown GPU gets. Attention with several new tokens
is that of packed kernels. **default**: the shipped default profile, which has seen the public tables.
**same generation**: the profile of another GPU of this architecture. Mean (and signed mean) / 95th percentile. The
one-sigma errors stated with results are 25 % of step time for an unknown GPU and 15 % for one of the same generation.
"""


def render(
    report: Report,
    steps: Sequence[StepErrors],
    servers: Sequence[ServerRow] = (),
    engines: str = "",
    transferred: Sequence[Transfer] = (),
    pictures: Mapping[str, str] | None = None,
) -> str:
    """The whole report; `engines` is a text of its own, as `engine_lines` writes it; `pictures` as in `suite_page`."""
    drawn = pictures or {}
    parts = [_INTRODUCTION, _gate_table(gates(report, steps, servers)), drawn.get("physics-kernels", "")]
    for operator in dict.fromkeys(own.operator for own in report.comparisons):
        own = [comparison for comparison in report.comparisons if comparison.operator == operator]
        parts.append(f"## {operator[0].upper()}{operator[1:]}\n\n{_comparison_table(own)}")
    if steps:
        parts.append(f"## Whole steps inside an engine\n\n{_step_table(steps)}\n\n{drawn.get('physics-steps', '')}")
    if servers:
        parts.append("## Whole servers\n\n" + "\n".join(server_lines(servers)))
    if transferred:
        parts.append(f"## A GPU that was never measured\n\n{_UNKNOWN}\n{_transfer_table(transferred)}")
        parts.append(drawn.get("physics-transfer", ""))
    if engines:
        parts.append(f"## What engines add to speculative steps\n\n{engines}")
    if report.skipped:
        parts.append("## Skipped\n\n" + "\n".join(f"- {s.what} ({s.rows} rows): {s.reason}" for s in report.skipped))
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _gate_table(found: Iterable[Gate]) -> str:
    rows = [[g.name, f"{g.limit_percent:g}", _mean(g.found), g.verdict] for g in found]
    return "## Targets, on left-out points\n\n" + table(["target", "limit", "found", "verdict"], rows)


def _comparison_table(comparisons: Sequence[Comparison]) -> str:
    rows = [_comparison_row(own) for own in comparisons]
    usable = [own for own in comparisons if own.usable_kernel]
    if len(usable) > 1:
        points = sum(len(own.rows.table) for own in usable)
        names = ("shipped_us", "left_out_us", "naive_us")
        rows.append(["**pooled**", "", str(points), *(_triple(pooled(usable, name)) for name in names), "", "", ""])
    head = ["GPU", "kind", "rows", "shipped", "left out", "naive", "all rows", "profile", "parameters at a bound"]
    return table(head, rows)


def _comparison_row(own: Comparison) -> list[str]:
    names = ("shipped_us", "left_out_us", "naive_us")
    kind = own.kind if own.usable_kernel else f"{own.kind} (fallback kernel: not pooled)"
    rows = f"{len(own.rows.table)} of {own.rows_in_table}"
    errors = [_triple(own.errors(name)) for name in names]
    everything = _mean(own.shipped_all) if own.rows_in_table > len(own.rows.table) else ""
    return [own.gpu, kind, rows, *errors, everything, own.profile, ", ".join(own.at_bound)]


def _step_table(steps: Sequence[StepErrors]) -> str:
    rows = [
        [s.gpu, f"{s.model} TP{s.tp}", s.kind, str(s.shipped.points), _triple(s.shipped), _triple(s.left_out),
         _triple(s.naive), f"{100 * s.attention_share:.0f} %"]
        for s in steps
    ]  # fmt: skip
    return table(["GPU", "model", "step", "rows", "shipped", "left out", "naive", "attention's share"], rows)


def _transfer_table(transferred: Sequence[Transfer]) -> str:
    rows = [[own.what, own.gpu, _signed(own.left_out), _signed(own.default), _signed(own.kin)] for own in transferred]
    return table(["what", "GPU", "left out", "default", "same generation"], rows)


def _signed(stats: ErrorStats | None) -> str:
    return "-" if stats is None else f"{stats.mape:.1f} ({stats.bias:+.1f}) / {stats.p95:.0f}"


def _triple(stats: ErrorStats | None) -> str:
    return "-" if stats is None else f"{stats.mape:.1f} / {stats.p95:.0f} / {stats.worst:.0f}"


def _mean(stats: ErrorStats | None) -> str:
    return "-" if stats is None else f"{stats.mape:.1f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
