"""The command line: a thin rim that calls the library. One small file per command, imported only when it is invoked.

Data goes to stdout, messages to stderr. Exit codes: 0 ok, 1 internal error, 2 usage or scenario error, 3 a limit of
`compare --fail-if` is broken, 4 some runs failed, 5 disk or memory full, 130 interrupted.
"""

import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from sim import __version__
from sim.errors import SimError

#: name -> (module with a click command of that name, one line of help). Reading this table imports nothing.
COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("sim.cli.check", "Lint a scenario without running it."),
    "explain": ("sim.cli.explain", "Memory, step times and break-even, without simulating."),
    "run": ("sim.cli.run", "Run all arms of a scenario and write results and a dashboard."),
    "breakeven": ("sim.cli.breakeven", "Search for where speculation stops paying, with intervals."),
    "tune-k": ("sim.cli.tune_k", "Choose K by batch size; prints the table for vLLM, SGLang or TensorRT-LLM."),
    "sensitivity": ("sim.cli.sensitivity", "How wrong each input may be before the decision flips."),
    "capacity": ("sim.cli.capacity", "Highest load within an SLO, and GPUs for a given load."),
    "sweep": ("sim.cli.sweep", "Run many operating points; resumable, in shards, on a cluster."),
    "compare": ("sim.cli.compare", "Compare results folders; fail when a metric moved too far."),
    "merge": ("sim.cli.merge", "Join the shards of a sweep."),
    "clean": ("sim.cli.clean", "Remove what killed runs left behind."),
    "report": ("sim.cli.report", "Build the dashboard of a results folder again."),
    "validate": ("sim.cli.validate", "Compare predictions with measurements."),
    "theory": ("sim.cli.theory", "Closed forms: tokens per step, speed-up, trees, losslessness."),
    "catalog": ("sim.cli.catalog", "GPUs, models, SLOs and published acceptance."),
    "calibrate": ("sim.cli.calibrate", "Fit a cost-model profile to measured times."),
    "fit-acceptance": ("sim.cli.fit_acceptance", "Fit acceptance parameters to recorded sequences."),
    "schema": ("sim.cli.schema", "Print the JSON Schema of scenarios."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first argument; a mistyped name is answered with the nearest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"No such command {args[0]!r}{_nearest(args[0])}.", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _nearest(word: str) -> str:
    import difflib  # costs 5 ms, only paid for mistakes

    near = difflib.get_close_matches(word, COMMANDS, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(COMMANDS)}"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, message="specsim %(version)s")
def cli() -> None:
    """Does speculative decoding pay, up to which batch size, and with which K?"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with its exit code; SIGTERM interrupts like Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run_command(list(sys.argv[1:] if arguments is None else arguments)))


def run_command(arguments: list[str]) -> int:
    """Run one command line and return its exit code; errors on purpose become messages on stderr."""
    _open_streams()
    try:
        with cli.make_context("specsim", arguments) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as mistake:
        mistake.show()
        return mistake.exit_code
    except SimError as error:
        click.echo(f"specsim: {error}", err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as interrupt:
        kept = getattr(interrupt, "run_dir", None)
        click.echo(f"specsim: interrupted{f'; finished runs are kept in {kept}' if kept else ''}", err=True)
        return 130
    except BrokenPipeError:
        _silence_stdout()  # the reader of our output has left
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO):
            raise
        _silence_stdout()
        click.echo(f"specsim: output cannot be written ({error.strerror})", err=True)
        return 5
    return 0


def _open_streams() -> None:
    """A closed stdout or stderr (`>&-`) is like a discarded one."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _silence_stdout() -> None:
    """Keep the interpreter from complaining when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
