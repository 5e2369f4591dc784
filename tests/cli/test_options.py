"""Options that several commands share: the same name, limits and words everywhere; colours."""

import importlib
import io

import click
import pytest

from sim.cli import COMMANDS
from sim.cli.colour import colour_wanted
from sim.cli.options import Common

SIMULATE = ("run", "sweep", "breakeven", "capacity", "sensitivity", "tune-k")


def options(name: str) -> dict[str, click.Parameter]:
    command = getattr(importlib.import_module(COMMANDS[name][0]), name.replace("-", "_"))
    return {parameter.name: parameter for parameter in command.params}


def test_commands_that_simulate_share_their_options() -> None:
    for shared in ("scenario", "overrides", "output", "jobs", "quiet"):
        assert all(shared in options(name) for name in SIMULATE), shared
    for shared in ("overrides", "jobs", "arms", "seed", "max_replicates", "min_gain", "confidence"):
        helps = {options(name)[shared].help for name in SIMULATE if shared in options(name)}  # type: ignore[attr-defined]
        assert len(helps) == 1, shared


def test_common_options_load_narrow_and_override(tmp_path_factory: pytest.TempPathFactory) -> None:
    common = Common("quickstart", ("sweep.replicates=3", "seed=1"), tmp_path_factory.mktemp("out"), 1, False, True)
    loaded = common.load("plain", more=["seed=2"])
    assert list(loaded.scenario.arms) == ["plain"]
    assert (loaded.scenario.sweep.replicates, loaded.scenario.seed) == (3, 2)
    assert common.load(replicates=4).scenario.sweep.replicates == 4
    assert common.work().progress is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_and_for_those_who_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colour_wanted(Terminal())
    assert not colour_wanted(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour_wanted(Terminal())
