"""Summary rows of cells without files: for searches that look at results before they decide what to run next."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from sim.errors import SimError
from sim.experiment.compare import Runs
from sim.experiment.executor import Died, Executor
from sim.experiment.task import Outcome, Task, run_cell_arm
from sim.metrics.summary import Row
from sim.scenario.cells import Cell


class RunFailedError(SimError):
    """A run that a search cannot do without failed; the message is its error."""


class Evaluator:
    """Runs what is asked for and not yet known; every run is made once.

    Args:
        executor: runs the tasks; stays open.
        base_dir: where relative file names of the scenarios start.

    Attributes:
        num_runs: simulations made so far.
        context_tokens: mean context of a decoding request, by cell.
    """

    def __init__(self, executor: Executor, base_dir: Path) -> None:
        self._executor, self._base_dir = executor, base_dir
        self._rows: dict[tuple[str, str], dict[int, Row]] = {}
        self.context_tokens: dict[str, float] = {}
        self.num_runs = 0

    def runs(self, cells: Iterable[Cell], arms: Sequence[str], replicates: Sequence[int]) -> Runs:
        """Rows of these cells, arms and replicates: (cell_id, arm) -> replicate -> row.

        Raises:
            RunFailedError: a run failed.
            KeyboardInterrupt: the user interrupted; what finished stays known.
        """
        cells = list(cells)
        wanted = [(cell, arm, replicate) for cell in cells for arm in arms for replicate in replicates]
        missing = [key for key in wanted if key[2] not in self._rows.get((key[0].cell_id, key[1]), {})]
        tasks = [self._task(*key) for key in missing]
        for index, result in self._executor.run(run_cell_arm, tasks):
            outcome = Outcome(None, result.reason, 1) if isinstance(result, Died) else result
            cell, arm, replicate = missing[index]
            if outcome.row is None:
                raise RunFailedError(f"{arm}, replicate {replicate}, {dict(cell.vary)}: {outcome.error}")
            self._rows.setdefault((cell.cell_id, arm), {})[replicate] = outcome.row
            self.context_tokens[cell.cell_id] = outcome.context_tokens
            self.num_runs += 1
        return {
            (cell.cell_id, arm): {r: self._rows[cell.cell_id, arm][r] for r in replicates}
            for cell in cells
            for arm in arms
        }

    def _task(self, cell: Cell, arm: str, replicate: int) -> Task:
        text = cell.scenario.model_dump_json()
        return Task(text, cell.cell_id, dict(cell.vary), arm, replicate, str(self._base_dir), keep_files=False)
