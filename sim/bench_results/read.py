"""Files of load tests -> measured points; the tool is told by content, and all faults come at once."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.bench_results import aiperf, guidellm, vllm_bench
from sim.bench_results.base import Fields, MeasuredPoint
from sim.csv_table import Problems
from sim.errors import Problem, ScenarioError
from sim.json_file import json_documents
from sim.text_file import read_text

FORMATS = (vllm_bench.FORMAT, aiperf.FORMAT, guidellm.FORMAT)
#: SGLang's client has vLLM's names, but spreads the gap of a chunk over its tokens.
_SGLANG = "mean_e2e_latency_ms"


def read_results(paths: Sequence[Path]) -> dict[Path, list[MeasuredPoint]]:
    """All points of some files, by file and in order.

    Raises:
        ScenarioError: with every problem of every file.
    """
    points, problems = dict[Path, list[MeasuredPoint]](), list[Problem]()
    for path in dict.fromkeys(paths):
        try:
            points[path] = _read_file(path)
        except ScenarioError as error:
            problems += error.problems
    if problems:
        raise ScenarioError(problems)
    return points


def _read_file(path: Path) -> list[MeasuredPoint]:
    text, _ = read_text(path)
    problems, found = Problems(path), list[MeasuredPoint]()
    documents = json_documents(text, path)
    for line, document in documents:
        source = f"{path}:{line}" if len(documents) > 1 else str(path)
        points = _read_document(document, line, source, problems)
        for point in points:
            for key, message in point.contradictions():
                problems.add(line, key, message)
        found += points
    problems.raise_if_any()
    if not found:
        problems.add(1, "", "holds no operating point")
    problems.raise_if_any()
    return found


def _read_document(document: object, line: int, source: str, problems: Problems) -> list[MeasuredPoint]:
    if not isinstance(document, Mapping):
        problems.add(line, "", "expected an object")
        return []
    if _SGLANG in document:
        problems.add(line, _SGLANG, "written by SGLang's bench_serving, whose ITL is per token; use vllm bench serve")
        return []
    known = [each for each in FORMATS if each.recognises(document)]
    if not known:
        files = "; ".join(f"{each.tool} ({each.file})" for each in FORMATS)
        problems.add(line, "", f"none of the files that are read: {files}")
        return []
    return known[0].read(Fields(document, problems, line), source)
