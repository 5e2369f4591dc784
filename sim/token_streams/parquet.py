"""Token streams in parquet files: two list columns of ids."""

from pathlib import Path
from typing import Any

from sim.csv_table import Problems
from sim.text_file import refuse
from sim.token_streams.formats import ID_COLUMNS, Request, check_ids

_MAGIC = b"PAR1"


def is_parquet(path: Path) -> bool:
    """Whether the file starts like one; False when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(4) == _MAGIC
    except OSError:
        return False


def read_parquet(path: Path) -> list[Request]:
    """Requests of the columns `prompt_token_ids` and `output_token_ids`; other columns are not read.

    Raises:
        ScenarioError: not such a file, or everything wrong in it, by row (the first row is 1).
    """
    import pyarrow
    import pyarrow.parquet

    try:
        names = pyarrow.parquet.read_schema(path).names
        missing = [name for name in ID_COLUMNS if name not in names]
        if missing:
            raise refuse(path, f"no column {' and no column '.join(missing)}; found {', '.join(names)}")
        table: Any = pyarrow.parquet.read_table(path, columns=list(ID_COLUMNS))
    except (OSError, pyarrow.ArrowException) as error:
        raise refuse(path, f"cannot be read: {str(error).splitlines()[0]}") from None
    if not table.num_rows:
        raise refuse(path, "has no rows")
    problems = Problems(path)
    requests = [check_ids(row, number, problems) for number, row in enumerate(table.to_pylist(), 1)]
    problems.raise_if_any()
    return requests
