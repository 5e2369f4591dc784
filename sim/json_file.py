"""JSON documents of a data file: one, or one a line, each with its line."""

import json
from pathlib import Path
from typing import Any

from sim.text_file import refuse


def json_documents(text: str, path: Path) -> list[tuple[int, Any]]:
    """(line, document): the whole text as one document, or one a line.

    Raises:
        ScenarioError: neither; with the line of the first fault.
    """
    try:
        return [(1, json.loads(text))]
    except json.JSONDecodeError as whole:
        try:
            return [(at, json.loads(line)) for at, line in enumerate(text.splitlines(), start=1) if line.strip()]
        except json.JSONDecodeError:
            raise refuse(path, f"neither JSON nor JSON lines: {whole.msg}", whole.lineno) from None
