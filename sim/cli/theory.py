"""`specsim theory`: the closed forms of speculative decoding at the command line. Nothing here simulates."""

from collections.abc import Iterator, Sequence

import click

from sim.cli.colour import colour_wanted
from sim.cli.numbers import Given
from sim.report.theory import (
    errata_lines,
    guesses_lines,
    lossless_lines,
    speedup_lines,
    text_of,
    theory_json,
    tokens_lines,
    tree_lines,
    worksheet_lines,
)
from sim.rng import Streams
from sim.theory.errata import errata as all_errata
from sim.theory.lossless import check_rule, random_pair, rules
from sim.theory.speedup import speedup_table
from sim.theory.tokens import expected_tokens
from sim.theory.trees import CostLine, best_sizes, check_ranks, guesses_tokens, tree_row
from sim.theory.worksheet import worksheet as fill_worksheet
from sim.verification.chain import Chain

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
ALPHAS = click.option("--alpha", default="0.5,0.6,0.7,0.8,0.9", show_default=True, help="Acceptance per draft.")


@click.group(name="theory")
def theory() -> None:
    """Closed forms: tokens per step, speed-up, trees, worksheets, losslessness, errata."""


@theory.command()
@ALPHAS
@click.option("--k", "ks", default="1:8", show_default=True, help="Drafts per step.")
@AS_JSON
def tokens(alpha: str, ks: str, as_json: bool) -> None:
    """Expected tokens per verify step, over acceptance and K."""
    given = Given()
    alphas, numbers = given.numbers("--alpha", alpha, 0, 1), given.counts("--k", ks, 0, 1000)
    given.finish()
    if as_json:
        grid = [{"alpha": a, "k": k, "tokens_per_step": expected_tokens(a, k)} for a in alphas for k in numbers]
        click.echo(theory_json(tokens=grid))
    else:
        _print(tokens_lines(alphas, numbers, colour_wanted()))


@theory.command()
@click.option("--alpha", default="0.6,0.8", show_default=True, help="Acceptance per draft.")
@click.option("--cost", default="0.05", show_default=True, help="c: time of a draft pass over that of a target pass.")
@click.option("--k", "ks", default="1:8", show_default=True, help="K of the table; the best one is sought up to 64.")
@AS_JSON
def speedup(alpha: str, cost: str, ks: str, as_json: bool) -> None:
    """Speed-up by K, the best K, and the draft cost that erases the gain."""
    given = Given()
    alphas, costs = given.numbers("--alpha", alpha, 0, 1), given.numbers("--cost", cost, 0, 1000)
    numbers = given.counts("--k", ks, 0, 64)
    given.finish()
    tables = [speedup_table(a, c, numbers) for a in alphas for c in costs]
    if as_json:
        click.echo(theory_json(speedup=tables))
    else:
        _print(speedup_lines(tables, colour_wanted()))


@theory.command()
@click.argument("drafted")
@click.argument("accepted")
@click.option("--steps", help="Verification steps with drafts (vLLM: num_drafts).")
@click.option("--k", help="Drafts per step, when all steps drafted the same.")
@AS_JSON
def worksheet(drafted: str, accepted: str, steps: str | None, k: str | None, as_json: bool) -> None:
    """From DRAFTED and ACCEPTED tokens of a server log to alpha and tokens per step. Give --steps or --k."""
    given, most = Given(), 10**15
    counters = (given.count("DRAFTED", drafted, 1, most), given.count("ACCEPTED", accepted, 0, most))
    num_drafts = None if steps is None else given.count("--steps", steps, 1, most)
    num_draft_tokens = None if k is None else given.count("--k", k, 1, 1000)
    given.finish()
    try:
        sheet = fill_worksheet(*counters, num_drafts=num_drafts, num_draft_tokens=num_draft_tokens)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        click.echo(theory_json(worksheet=sheet))
    else:
        _print(worksheet_lines(sheet, colour_wanted()))


@theory.command()
@click.option("--ranks", default="0.7,0.12,0.05,0.03", show_default=True,
              help="Acceptance of a node's first, second, ... child.")  # fmt: skip
@click.option("--nodes", default="1,2,4,8,16,32,64", show_default=True, help="Sizes, root included.")
@click.option("--max-depth", help="Longest path; default no limit.")
@click.option("--batch", "batches", default="1,4,16,64,256", show_default=True, help="Batches of the second table.")
@click.option("--base-ms", default="5", show_default=True, help="Target pass, whatever it verifies.")
@click.option("--token-ms", default="0.02", show_default=True, help="Per verified token of the batch.")
@click.option("--draft-ms", default="0.3", show_default=True, help="Drafting, per level of the tree.")
@AS_JSON
def tree(
    ranks: str,
    nodes: str,
    max_depth: str | None,
    batches: str,
    base_ms: str,
    token_ms: str,
    draft_ms: str,
    as_json: bool,
) -> None:
    """The best draft tree by size, and how the best size shrinks with the batch."""
    given = Given()
    chances, sizes = given.numbers("--ranks", ranks, 0, 1), given.counts("--nodes", nodes, 1, 1024)
    depth = None if max_depth is None else given.count("--max-depth", max_depth, 1, 1024)
    numbers = given.counts("--batch", batches, 1, 1_000_000)
    times = [given.number(f"--{name}-ms", text, 0, 1e6)
             for name, text in (("base", base_ms), ("token", token_ms), ("draft", draft_ms))]  # fmt: skip
    try:
        check_ranks(chances)
    except ValueError as error:
        given.wrong("--ranks", str(error))
    if times[0] + times[1] <= 0:
        given.wrong("--base-ms", "a target pass takes time: --base-ms and --token-ms are both 0")
    given.finish()
    trees = [tree_row(chances, size, depth) for size in sizes]
    best = best_sizes(chances, CostLine(*times), numbers, sizes[-1], depth)
    if as_json:
        click.echo(theory_json(trees=trees, best_size=best))
    else:
        _print(tree_lines(trees, best, colour_wanted()))


@theory.command()
@click.option("--alpha", default="0.5", show_default=True, help="Acceptance per token of a guess.")
@click.option("--length", "lengths", default="2,4,8", show_default=True, help="g: tokens per guess.")
@click.option("--guesses", "counts", default="1,2,4,8,15", show_default=True, help="b: guesses verified at once.")
@AS_JSON
def guesses(alpha: str, lengths: str, counts: str, as_json: bool) -> None:
    """Tokens per step of independent guesses, as Lookahead decoding verifies them."""
    given = Given()
    rate = given.number("--alpha", alpha, 0, 1)
    longs, numbers = given.counts("--length", lengths, 1, 1000), given.counts("--guesses", counts, 1, 10_000)
    given.finish()
    if as_json:
        grid = [
            {"length": g, "guesses": b, "tokens_per_step": guesses_tokens(rate, g, b)} for g in longs for b in numbers
        ]
        click.echo(theory_json(alpha=rate, guesses=grid))
    else:
        _print(guesses_lines(rate, longs, numbers, colour_wanted()))


@theory.command()
@click.option("--p", "target", metavar="0.5,0.3,0.2", help="The target's distribution; default a random pair.")
@click.option("--q", "draft", metavar="0.2,0.6,0.2", help="The drafter's.")
@click.option("--k", default="1", show_default=True, help="Drafts per step, all from the same pair.")
@click.option("--vocabulary", default="4", show_default=True, help="Tokens of a random pair.")
@click.option("--samples", default="100k", show_default=True, help="Steps to sample.")
@click.option("--seed", default="0", show_default=True, help="Of the pair and the samples.")
@AS_JSON
def lossless(
    target: str | None, draft: str | None, k: str, vocabulary: str, samples: str, seed: str, as_json: bool
) -> None:
    """How far the output of every verification rule is from the target's: exactly, and sampled."""
    given = Given()
    numbers = (given.count("--k", k, 1, 12), given.count("--vocabulary", vocabulary, 2, 1000))
    num_samples = given.count("--samples", samples, 100, 5_000_000)
    streams = Streams(given.count("--seed", seed, 0, 2**62))
    pair = _pair(given, target, draft)
    given.finish()
    p, q = pair or tuple(tuple(side.tolist()) for side in random_pair(numbers[1], streams))
    try:
        chain = Chain.repeated(p, q, numbers[0])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    checks = [check_rule(rule, chain, num_samples, streams) for rule in rules()]
    if as_json:
        click.echo(theory_json(p=p, q=q, k=numbers[0], rules=checks))
    else:
        head = f"p = {_shown(p)}, q = {_shown(q)}, K = {numbers[0]}"
        _print(lossless_lines(checks, head, num_samples, colour_wanted()))


def _shown(distribution: Sequence[float]) -> str:
    listed = ", ".join(f"{x:.3g}" for x in distribution[:6])
    return f"({listed}{', ...' if len(distribution) > 6 else ''})"


def _pair(given: Given, target: str | None, draft: str | None) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    if target is None and draft is None:
        return None
    if target is None or draft is None:
        given.wrong("--p" if target is None else "--q", "missing; give both distributions or neither")
        return None
    p, q = given.numbers("--p", target, 0, 1), given.numbers("--q", draft, 0, 1)
    for option, values in (("--p", p), ("--q", q)):
        if not given.problems and abs(sum(values) - 1) > 1e-9:
            given.wrong(option, f"no distribution: the sum is {sum(values):g}, not 1")
    if len(p) != len(q):
        given.wrong("--q", f"{len(q)} tokens, --p has {len(p)}; they share a vocabulary")
    return p, q


@theory.command()
@AS_JSON
def errata(as_json: bool) -> None:
    """Popular statements that are wrong, beside the computed values."""
    if as_json:
        click.echo(theory_json(errata=all_errata()))
    else:
        _print(errata_lines(all_errata(), colour_wanted()))


def _print(lines: Iterator[str]) -> None:
    click.echo(text_of(lines), nl=False, color=colour_wanted())
