"""The step-time tables of `specsim explain`: times of the arms' own K, and the speed-up of every K."""

from collections.abc import Iterator, Sequence

from sim.experiment.step_table import StepRow, StepTable
from sim.report.plain_text import band, columns, count, number, short

#: K beside each other in the table of speed-ups
_KS_PER_TABLE = 11
_HEAD = ("batch", "K", "total", "target", "draft", "host", "bound", "tok/step", "ms/token", "speed-up", "+1 tok")
_UNITS = ("", "", "ms", "ms", "ms", "ms", "", "", "", "", "us")


def step_lines(table: StepTable, *, every_k: bool, breakdown: bool) -> Iterator[tuple[str, list[str]]]:
    """(heading, lines) of every part of a table."""
    name = table.method if table.method == "plain" else f"{table.method} ({short(', '.join(table.arms), 50)})"
    wanted = {0, *table.arm_ks}
    for context in dict.fromkeys(row.context_tokens for row in table.rows):
        rows = [row for row in table.rows if row.context_tokens == context]
        chosen = [row for row in rows if every_k or row.num_draft_tokens in wanted]
        where = f"{name}, context {count(context)}"
        yield f"Step time, {where}", [*_times(chosen), *_remarks(table, chosen)]
        if breakdown:
            yield f"Target pass by op group, ms, {where}", list(_groups(chosen))
        if table.tree:
            yield f"Best tree of the first K nodes by batch, {where}", list(_best_trees(rows, table.arm_ks[-1]))
        elif len({row.num_draft_tokens for row in rows} - {0}) > 1:
            yield f"Speed-up over K = 0 by K, {where}", list(_by_k(rows))


def _times(rows: Sequence[StepRow]) -> Iterator[str]:
    cells = [
        [
            *_place(rows, index),
            *map(number, (row.total_ms, row.target_ms, row.draft_ms, row.host_ms)),
            row.bound,
            "-" if row.tokens_per_step is None else f"{row.tokens_per_step:.2f}",
            number(row.ms_per_token),
            band(row.speedup, row.speedup_low, row.speedup_high),
            number(row.verify_token_us),
        ]
        for index, row in enumerate(rows)
    ]
    yield from columns([_HEAD, _UNITS, *cells], indent=2)


def _place(rows: Sequence[StepRow], index: int) -> tuple[str, str]:
    """Batch and K; the batch only where it changes, with a star when it does not fit."""
    row = rows[index]
    same = index > 0 and rows[index - 1].batch == row.batch and rows[index - 1].fits == row.fits
    return "" if same else _batch(row), str(row.num_draft_tokens)


def _batch(row: StepRow) -> str:
    return f"{row.batch:,}" + ("" if row.fits else "*")


def _remarks(table: StepTable, rows: Sequence[StepRow]) -> Iterator[str]:
    if any(not row.fits for row in rows):
        yield "  * does not fit: KV pool, max_num_seqs or the token budget hold fewer"
    if table.draft_count_varies:
        yield "  priced as if every step had K drafts; steps without a match are cheaper"


def _groups(rows: Sequence[StepRow]) -> Iterator[str]:
    names = list(rows[0].op_ms)
    cells = []
    for index, row in enumerate(rows):
        shares = [
            f"{number(ms)} ({100 * ms / row.target_ms if row.target_ms else 0:.0f} %)" for ms in row.op_ms.values()
        ]
        cells.append([*_place(rows, index), *shares, number(row.target_ms)])
    yield from columns([["batch", "K", *names, "target"], *cells], indent=2)


def _by_k(rows: Sequence[StepRow]) -> Iterator[str]:
    """A row per batch, a column per K; the best K of a batch is marked."""
    ks = sorted({row.num_draft_tokens for row in rows} - {0})
    batches = {row.batch: _batch(row) for row in rows}
    gains = {(row.batch, row.num_draft_tokens): row.speedup for row in rows}
    for start in range(0, len(ks), _KS_PER_TABLE):
        part = ks[start : start + _KS_PER_TABLE]
        head = ["batch", *(f"K={k} " for k in part), "best"]
        cells = [[label, *_gain_cells(gains, batch, part), _best(gains, batch, ks)] for batch, label in batches.items()]
        yield from columns([head, *cells], indent=2, gap=1)


def _best_trees(rows: Sequence[StepRow], whole: int) -> Iterator[str]:
    """Per batch the number of nodes with the largest speed-up, beside the whole tree."""
    cells = []
    for batch in dict.fromkeys(row.batch for row in rows):
        sizes = {row.num_draft_tokens: row for row in rows if row.batch == batch and row.speedup is not None}
        best = sizes[best_size(list(sizes.values()))]
        cells.append([_batch(best), str(best.num_draft_tokens), *_tree_cells(best), *_tree_cells(sizes.get(whole))])
    head = ("batch", "best K", "tok/step", "speed-up", f"K={whole}: tok/step", "speed-up")
    yield from columns([head, *cells], indent=2)


def best_size(rows: Sequence[StepRow]) -> int:
    """K of the row with the largest speed-up, of rows of one batch; the smaller one of equals."""
    return max(rows, key=lambda row: (row.speedup or 0.0, -row.num_draft_tokens)).num_draft_tokens


def _tree_cells(row: StepRow | None) -> tuple[str, str]:
    if row is None or row.tokens_per_step is None:
        return "-", "-"
    return f"{row.tokens_per_step:.2f}", band(row.speedup, row.speedup_low, row.speedup_high)


def _gain_cells(gains: dict[tuple[int, int], float | None], batch: int, ks: Sequence[int]) -> Iterator[str]:
    for k in ks:
        gain = gains[batch, k]
        yield "- " if gain is None else f"{gain:.2f} "


def _best(gains: dict[tuple[int, int], float | None], batch: int, ks: Sequence[int]) -> str:
    known = {k: gain for k in ks if (gain := gains[batch, k]) is not None}
    best = max(known, key=lambda k: known[k], default=0)
    return f"K={best}" if known and known[best] > 1 else "plain"
