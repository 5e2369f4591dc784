"""Text forms of token streams: JSON lines, and CSV with relabelled ids. Strict: every fault with its line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sim.csv_table import Cells, Problems, csv_columns, csv_rows, found
from sim.text_file import refuse

#: Prompt and output ids of a request.
Request = tuple[list[int], list[int]]

#: Columns of JSON lines and parquet, named as in vLLM's `RequestOutput`; `request` (any name of it) is optional.
ID_COLUMNS = ("prompt_token_ids", "output_token_ids")
_ALLOWED = (*ID_COLUMNS, "request")
#: Columns of CSV: lengths, and both parts of the request between blanks.
CSV_COLUMNS = ("prompt_tokens", "output_tokens", "labels")
#: Ids above this are no vocabulary's.
MAX_TOKEN_ID = 2**31 - 1
#: Tokens of a file, all requests together.
MAX_TOKENS = 20_000_000


def read_jsonl(text: str, path: Path) -> list[Request]:
    """Requests of `{"prompt_token_ids": [...], "output_token_ids": [...]}` lines; empty lines at the end are ignored.

    Raises:
        ScenarioError: everything wrong, by line.
    """
    problems = Problems(path)
    lines = enumerate(text.rstrip().split("\n"), 1)
    requests = [_json_request(line, number, problems) for number, line in lines]
    problems.raise_if_any()
    return requests


def check_ids(request: dict[str, Any], line: int, problems: Problems) -> Request:
    """Ids of one request given by column; reports what is wrong with them."""
    for key in ID_COLUMNS:
        for message in _faults(request.get(key), key in request):
            problems.add(line, key, message)
    return request.get(ID_COLUMNS[0]) or [], request.get(ID_COLUMNS[1]) or []


def _json_request(text: str, line: int, problems: Problems) -> Request:
    try:
        request = json.loads(text)
    except (ValueError, RecursionError) as error:
        problems.add(line, "", f"not a JSON object: {error}")
        return [], []
    if not isinstance(request, dict):
        problems.add(line, "", f"expected a JSON object, found {found(text)}")
        return [], []
    for key in request:
        if key not in _ALLOWED:
            problems.add(line, key, f"unknown key; allowed: {', '.join(_ALLOWED)}")
    return check_ids(request, line, problems)


def _faults(ids: Any, present: bool) -> Iterator[str]:
    """What is wrong with a list of ids: the first fault of it."""
    if not present:
        yield "missing"
    elif not isinstance(ids, list):
        yield f"expected a list of token ids, found {found(str(ids))}"
    elif not ids:
        yield "is empty; allowed: at least one token"
    else:
        for place, value in enumerate(ids):
            if type(value) is not int or not 0 <= value <= MAX_TOKEN_ID:
                yield f"expected token ids, whole numbers 0 to {MAX_TOKEN_ID}, found {found(str(value))} at [{place}]"
                break


def read_csv(text: str, path: Path) -> list[Request]:
    """Requests of a CSV with `CSV_COLUMNS` (more columns are allowed).

    Raises:
        ScenarioError: everything wrong, by line.
    """
    header, rows = csv_rows(text.rstrip(), path)
    missing = [name for name in CSV_COLUMNS if name not in header]
    if missing:
        needed = f"needed: {', '.join(CSV_COLUMNS)}; or JSON lines with {' and '.join(ID_COLUMNS)}"
        raise refuse(path, f"no column {' and no column '.join(missing)}; {needed}", 1)
    if not rows:
        raise refuse(path, "has a header but no requests", 1)
    problems = Problems(path)
    cells = csv_columns(text, header, rows, problems)
    prompt, output, labels = (cells[header.index(name)] for name in CSV_COLUMNS)
    requests = [_csv_request(row, (prompt, output, labels), problems) for row in range(len(labels.text))]
    problems.raise_if_any()
    return requests


def _csv_request(row: int, columns: tuple[Cells, Cells, Cells], problems: Problems) -> Request:
    line, good = columns[0].lines[row], True
    for column in columns[:2]:
        if not _is_whole(column.text[row]) or int(column.text[row]) == 0:
            problems.add(line, column.name, f"expected a number of tokens, at least 1, found {found(column.text[row])}")
            good = False
    labels = columns[2].text[row].split()
    wrong = next((label for label in labels if not _is_whole(label) or int(label) > MAX_TOKEN_ID), None)
    if wrong is not None:
        problems.add(line, "labels", f"expected whole numbers 0 to {MAX_TOKEN_ID}, found {found(wrong)}")
    elif good:
        prompt, output = int(columns[0].text[row]), int(columns[1].text[row])
        if len(labels) == prompt + output:
            ids = list(map(int, labels))
            return ids[:prompt], ids[prompt:]
        message = f"has {len(labels)} ids; prompt_tokens and output_tokens say {prompt} + {output}"
        problems.add(line, "labels", message)
    return [], []


def _is_whole(text: str) -> bool:
    return text.isascii() and text.strip().isdigit() and len(text) < 20
