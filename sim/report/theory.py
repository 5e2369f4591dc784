"""The text of `specsim theory`: tables and one sentence on what they mean. ASCII, at most 100 columns."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, is_dataclass

from sim.report.plain_text import WIDTH, bold, columns, labelled, number
from sim.theory.errata import Erratum
from sim.theory.lossless import RuleCheck
from sim.theory.speedup import SpeedupTable
from sim.theory.tokens import expected_tokens
from sim.theory.trees import BestSize, TreeRow, guesses_tokens
from sim.theory.worksheet import Worksheet


def theory_json(**parts: object) -> str:
    """One JSON document; data classes become objects."""
    return json.dumps({"schema_version": 1, **parts}, indent=1, default=_plain, allow_nan=False)


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def text_of(lines: Iterator[str]) -> str:
    """Lines as they are printed."""
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _said(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def tokens_lines(alphas: Sequence[float], ks: Sequence[int], colour: bool) -> Iterator[str]:
    """Tokens per step, K down and alpha across."""
    yield bold("Expected tokens per verify step, bonus token included: 1 + a + ... + a^K", colour)
    head = ["K \\ alpha", *(f"{alpha:g}" for alpha in alphas)]
    yield from columns([head, *([str(k), *(f"{expected_tokens(a, k):.4f}" for a in alphas)] for k in ks)])
    yield from _said("Accepted drafts are one less. For endless K: 1 / (1 - alpha).")


def speedup_lines(tables: Sequence[SpeedupTable], colour: bool) -> Iterator[str]:
    """A table per alpha and draft cost, and its verdict."""
    for index, table in enumerate(tables):
        if index:
            yield ""
        yield bold(f"alpha {table.alpha:g}, draft pass {table.draft_cost:g} of a target pass", colour)
        rows = [["K", "tokens per step", "speed-up", "pays while c is below"]]
        rows += [
            [str(r.num_draft_tokens), f"{r.tokens_per_step:.4f}", f"{r.speedup:.3f}", number(r.pays_below)]
            for r in table.rows
        ]
        yield from columns(rows, indent=2)
        yield from _said(_verdict(table))
    yield from [
        "",
        *_said("Batch 1 and memory-bound: verifying costs one target pass. For a real GPU: specsim explain."),
    ]


def _verdict(table: SpeedupTable) -> str:
    if not table.best_k:
        return "Turn it off: no K pays, for a draft pass costs at least as much as a draft brings."
    last = table.pays_up_to_k
    end = "every K up to 64 pays" if last >= 64 else f"from K = {last + 1} on the drafting erases the gain"
    return f"Best K = {table.best_k}, speed-up {table.best_speedup:.3f}; {end}."


def worksheet_lines(sheet: Worksheet, colour: bool) -> Iterator[str]:
    """From the counters to alpha, line by line."""
    yield bold("Acceptance worksheet", colour)
    facts = {
        "drafted, accepted": f"{sheet.drafted:,} and {sheet.accepted:,} tokens in {sheet.num_drafts:,.6g} steps",
        "K": f"{sheet.num_draft_tokens:.4g} drafts per step",
        "acceptance rate": f"{sheet.acceptance_rate:.4f} accepted over drafted; not alpha",
        "accepted per step": f"{sheet.accepted_per_step:.4f} without the bonus token",
        "tokens per step": f"{sheet.tokens_per_step:.4f} with the bonus token (vLLM's mean acceptance length)",
        "alpha": _alpha(sheet),
    }
    for label, text in facts.items():
        yield from labelled(f"  {label}", text, 22)


def _alpha(sheet: Worksheet) -> str:
    if sheet.alpha is None:
        return "unknown: K varied; give counters of one K"
    error = f" +- {sheet.alpha_error:.4f}" if sheet.alpha_error is not None else ""
    return (
        f"{sheet.alpha:.4f}{error} per draft, were all drafts alike: acceptance {{kind: iid, rate: {sheet.alpha:.4f}}}"
    )


def tree_lines(trees: Sequence[TreeRow], best: Sequence[BestSize], colour: bool) -> Iterator[str]:
    """The best tree of each size beside the chain, and the best size of each batch."""
    yield bold("Best tree by number of nodes (verified tokens, root included)", colour)
    rows = [["nodes", "depth", "tokens per step", "a chain of as many", "nodes at depth 1, 2, ..."]]
    for tree in trees:
        widths = " ".join(map(str, tree.widths[:10])) + (" ..." if tree.depth > 10 else "")
        tokens = (f"{tree.tokens_per_step:.4f}", f"{tree.chain_tokens_per_step:.4f}")
        rows.append([str(tree.nodes), str(tree.depth), *tokens, widths or "-"])
    yield from columns(rows, indent=2)
    yield from ["", bold("Best size by batch, on the cost line", colour)]
    rows = [["batch", "nodes", "depth", "tokens per step", "speed-up over plain"]]
    rows += [[str(b.batch), str(b.nodes), str(b.depth), f"{b.tokens_per_step:.3f}", f"{b.speedup:.3f}"] for b in best]
    yield from columns(rows, indent=2)
    if off := [b.batch for b in best if b.nodes == 1]:
        yield from _said(f"At batch {', '.join(map(str, off))} no tree pays: turn it off.")


def guesses_lines(alpha: float, lengths: Sequence[int], counts: Sequence[int], colour: bool) -> Iterator[str]:
    """Tokens per step of b independent guesses, b down and their length across."""
    yield bold(f"Tokens per step of b independent guesses of length g, alpha {alpha:g}", colour)
    rows = [["b \\ g", *map(str, lengths)]]
    rows += [[str(b), *(f"{guesses_tokens(alpha, g, b):.4f}" for g in lengths)] for b in counts]
    yield from columns(rows)


def lossless_lines(checks: Sequence[RuleCheck], head: str, num_samples: int, colour: bool) -> Iterator[str]:
    """A row per rule."""
    yield from (bold(line, colour) for line in _said(f"Output of every rule against the target's, {head}"))
    rows = [["rule", "lossless", "against", "TV exact", "TV sampled", "by chance", "acceptance", "tokens/step"]]
    for check in checks:
        name = f"{check.rule} ({check.parameters})" if check.parameters else check.rule
        exact = "0" if check.tv_exact < 1e-12 else f"{check.tv_exact:.4f}"
        sampled = f"{check.tv_sampled:.4f} +- {check.tv_error:.4f}"
        row = [name, "yes" if check.lossless else "NO", check.reference, exact, sampled, f"{check.tv_chance:.4f}"]
        rows.append([*row, f"{check.acceptance:.4f}", f"{check.tokens_per_step:.4f}"])
    yield from columns(rows, left=1)
    yield from _said(
        f"TV: total variation distance of the whole block. Sampled: {num_samples:,} steps; `by chance` is what "
        "sampling noise alone shows on average."
    )


def errata_lines(found: Sequence[Erratum], colour: bool) -> Iterator[str]:
    """Statement, verdict, what holds."""
    for erratum in found:
        yield from (bold(line, colour) for line in _said(f'"{erratum.statement}"'))
        yield from labelled(f"  {erratum.verdict}:", erratum.correct, 18)
