"""The error tree. Everything a user can cause is a `SimError` and ends in exit code 2 without a traceback.

SimError
├─ ScenarioError    the scenario (or a file it names) is wrong: every problem at once, with file, line and column
├─ CapacityError    the deployment cannot hold weights + drafter + one request: the numbers are in the message
├─ ResultsError     a results folder cannot be read or written
├─ CalibrationError measured times or published figures cannot be read, or are too few to fit
└─ InvariantError   a law of the simulation was broken: our bug, so it carries the command that replays it
"""

from collections.abc import Sequence
from dataclasses import dataclass


class SimError(Exception):
    """Base of all errors raised on purpose by specsim."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a scenario.

    Attributes:
        where: `file:line:column`, or a file name, or "" when the scenario was built in Python.
        key: dotted key, such as `engine.max_num_seqs`; "" for the whole file.
        message: what was found, what is allowed, and the nearest spelling if there is one.
        excerpt: the source line with a caret below it; "" when there is none.
    """

    where: str
    key: str
    message: str
    excerpt: str = ""

    def __str__(self) -> str:
        head = ": ".join(part for part in (self.where, self.key, self.message) if part)
        return f"{head}\n{self.excerpt}" if self.excerpt else head


class ScenarioError(SimError):
    """One or more problems in what the user wrote; `problems` lists all of them."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems = (Problem("", "", problems),) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class CapacityError(SimError):
    """Weights, drafter and one request do not fit the GPUs; the message gives the numbers."""


class ResultsError(SimError):
    """A results folder is unreadable, half-written or cannot be written."""


class CalibrationError(SimError):
    """Tables of measured times are missing, malformed or too small; the message names the file and the rows."""


class InvariantError(SimError):
    """A law of the simulation was broken (a bug of specsim, never of the user)."""

    exit_code = 1
