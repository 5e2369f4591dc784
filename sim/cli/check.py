"""`specsim check`: problems and notes of a scenario, as text, JSON or GitHub annotations."""

import json
import re
import textwrap
from typing import Any

import click

from sim.errors import Problem, ScenarioError
from sim.scenario.lint import lint, plural
from sim.scenario.load import load_scenario

#: Columns of the text.
WIDTH = 100
_PLACE = re.compile(r"(?P<file>.*?):(?P<line>\d+):(?P<column>\d+)", re.DOTALL)


@click.command()
@click.argument("scenario")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a field: engine.block_size=32.")
@click.option("--format", "style", type=click.Choice(["text", "json", "github"]), default="text", show_default=True)
@click.option("--strict", is_flag=True, help="Notes (keys without effect and the like) fail the check too.")
def check(scenario: str, overrides: tuple[str, ...], style: str, strict: bool) -> None:
    """Lint SCENARIO (a file, or the name of a shipped scenario) without running it: all problems at once.

    Exit code 2 when there are problems, or notes with --strict.
    """
    problems, notes, summary = _examine(scenario, overrides)
    printer = {"text": _print_text, "json": _print_json, "github": _print_github}[style]
    printer(problems, notes, summary)
    if problems or (strict and notes):
        raise click.exceptions.Exit(2)


def _examine(scenario: str, overrides: tuple[str, ...]) -> tuple[list[Problem], list[str], list[str]]:
    try:
        loaded = load_scenario(scenario, overrides)
    except ScenarioError as error:
        return list(error.problems), [], []
    report = lint(loaded)
    return list(report.problems), list(loaded.notes), list(report.summary)


def _print_text(problems: list[Problem], notes: list[str], summary: list[str]) -> None:
    for problem in problems:
        click.echo(str(problem))
    for line in notes:
        click.echo(f"note: {line}")
    for line in summary:
        click.echo(textwrap.fill(line, WIDTH, subsequent_indent="      ", break_on_hyphens=False))
    counts = f"{plural(len(problems), 'problem')}, {plural(len(notes), 'note')}"
    click.echo(counts if problems or notes else "ok")


def _print_json(problems: list[Problem], notes: list[str], summary: list[str]) -> None:
    document = {
        "ok": not problems,
        "problems": [{**_place(p.where), "key": p.key, "message": p.message} for p in problems],
        "notes": notes,
        "summary": summary,
    }
    click.echo(json.dumps(document, indent=1))


def _place(where: str) -> dict[str, Any]:
    match = _PLACE.fullmatch(where)
    if match is None:
        return {"file": where or None, "line": None, "column": None}
    return {"file": match["file"], "line": int(match["line"]), "column": int(match["column"])}


def _print_github(problems: list[Problem], notes: list[str], summary: list[str]) -> None:
    for problem in problems:
        _annotate("error", problem.where, f"{problem.key}: {problem.message}" if problem.key else problem.message)
    for line in notes:
        match = _PLACE.match(line)
        _annotate("notice", match[0] if match else "", line[match.end() + 2 :] if match else line)


def _annotate(level: str, where: str, message: str) -> None:
    place = _place(where)
    names = {"file": "file", "line": "line", "column": "col"}
    fields = ",".join(f"{names[key]}={_escape(str(value), ':,')}" for key, value in place.items() if value is not None)
    click.echo(f"::{level} {fields}::{_escape(message)}" if fields else f"::{level}::{_escape(message)}")


def _escape(text: str, more: str = "") -> str:
    """GitHub's escapes: percent first, then line ends, then what separates properties."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
