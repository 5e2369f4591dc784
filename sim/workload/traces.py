"""Request traces: recorded arrival times and lengths, from a shipped excerpt or a file of the user's."""

import hashlib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from sim.errors import Problem, ScenarioError
from sim.spec import Spec
from sim.text_file import read_text
from sim.token_streams.streams import holds_streams, read_streams
from sim.units import PositiveCount, Seconds
from sim.workload.prefixes import BlockHashes
from sim.workload.requests import Ints
from sim.workload.trace_formats import TraceFormat, parse

_KEY = "workload.trace"


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests of a trace (or of a window of it), in order of arrival.

    Attributes:
        arrival_ns: (N,) from the start of the trace (of the window).
        input_tokens, output_tokens: (N,) lengths, >= 1.
        path: the file.
        sha256: of the file's bytes, hex.
        block_hashes: of every prompt's 512-token blocks; None when the trace has none.
        timed: whether the file says when requests arrive; else all times are 0.
    """

    arrival_ns: Ints
    input_tokens: Ints
    output_tokens: Ints
    path: Path
    sha256: str
    block_hashes: BlockHashes | None = None
    timed: bool = True

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def span_s(self) -> float:
        """Time of the last arrival in seconds."""
        return float(self.arrival_ns[-1]) / 1e9

    def rows(self, part: slice, origin_ns: int) -> "Trace":
        """A part of the trace with times counted from `origin_ns`."""
        times = self.arrival_ns[part] - origin_ns
        hashes = None if self.block_hashes is None else self.block_hashes.rows(part)
        prompt, output = self.input_tokens[part], self.output_tokens[part]
        return replace(self, arrival_ns=times, input_tokens=prompt, output_tokens=output, block_hashes=hashes)


class TraceSource(Spec):
    """Which requests of which trace; just a name or path stands for `{path: ...}`.

    Attributes:
        path: a shipped trace (`azure2023-conv`) or a file, relative to the scenario; `.gz` is unpacked.
        format: `azure` (TIMESTAMP,ContextTokens,GeneratedTokens), `mooncake` (JSON lines), `csv`
            (arrival_s,input_tokens,output_tokens), `streams` (token ids, see acceptance `stream_replay`; lengths only,
            no arrival times); `auto` tells them apart by their first line.
        start_s: start of the window. Arrivals are counted from here, so a later start leaves no idle time before it.
            Trace time 0 is the first row for time stamps with a date, else as written.
        duration_s: length of the window (its end excluded); null = to the end.
        max_requests: at most so many requests of the window; null = all.
        tick_s: resolution of the time stamps: requests with the same stamp are spread uniformly at random over so much
            time (at most to the next stamp), the same way in every replicate. null = found out for `mooncake` (3 s),
            none for the others; 0 = none.
    """

    path: Annotated[str, Field(min_length=1)]
    format: TraceFormat = "auto"
    start_s: Seconds = 0.0
    duration_s: Annotated[Seconds, Field(gt=0)] | None = None
    max_requests: PositiveCount | None = None
    tick_s: Annotated[Seconds, Field(le=3600)] | None = None

    def load(self, base_dir: Path) -> Trace:
        """The requests of the window; a file is read once per process.

        Raises:
            ScenarioError: no such trace, anything wrong in the file (by line), or an empty window.
        """
        return _window(load_file(find_trace(self.path, base_dir), self.format, self.tick_s), self)


def _from_name(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


#: What a scenario writes under `workload.trace`: a name, or a mapping.
TraceChoice = Annotated[TraceSource, BeforeValidator(_from_name, json_schema_input_type=str | TraceSource)]


def shipped_traces() -> dict[str, Path]:
    """Traces that come with specsim, by id: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "scenarios"
    folder = (installed if installed.is_dir() else package.parent / "scenarios") / "traces"
    return {path.stem: path for path in sorted(folder.glob("*.csv"))}


def find_trace(name_or_path: str, base_dir: Path) -> Path:
    """The file of a trace given by path (relative to `base_dir`) or by the id of a shipped one.

    Raises:
        ScenarioError: neither.
    """
    try:
        path = base_dir / name_or_path
        if path.is_file():
            return path
        if path.exists():
            raise ScenarioError([Problem("", _KEY, f"{name_or_path[:80]!r} is not a regular file")])
    except (OSError, ValueError):
        raise ScenarioError([Problem("", _KEY, f"{name_or_path[:80]!r} is not a usable file name")]) from None
    shipped = shipped_traces()
    if name_or_path.removesuffix(".csv") in shipped:
        return shipped[name_or_path.removesuffix(".csv")]
    close = get_close_matches(name_or_path, shipped, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    message = (
        f"found {name_or_path[:80]!r}: no such file in {base_dir}, and no shipped trace ({', '.join(shipped)}){hint}"
    )
    raise ScenarioError([Problem("", _KEY, message)])


def load_file(path: Path, trace_format: TraceFormat = "auto", tick_s: float | None = None) -> Trace:
    """All requests of a trace file; cached as long as the file does not change.

    Raises:
        ScenarioError: unreadable, or everything wrong in it by line.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ScenarioError([Problem(str(path), "", f"cannot be read: {error.strerror}")]) from None
    return _load(path.absolute(), path, status.st_mtime_ns, status.st_size, trace_format, tick_s)


@lru_cache(maxsize=8)
def _load(
    _absolute: Path, path: Path, _mtime_ns: int, _size: int, trace_format: TraceFormat, tick_s: float | None
) -> Trace:
    if trace_format == "streams" or (trace_format == "auto" and holds_streams(path)):
        return _of_streams(path)
    text, digest = read_text(path)
    columns = parse(text, path, trace_format, tick_s)
    for column in columns[:3]:
        column.setflags(write=False)
    return Trace(*columns[:3], path, digest, block_hashes=columns.block_hashes)


def _of_streams(path: Path) -> Trace:
    streams = read_streams(path)
    times = np.zeros(len(streams), dtype=np.int64)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Trace(times, streams.prompt_tokens, streams.output_tokens, path, digest, timed=False)


def _window(trace: Trace, source: TraceSource) -> Trace:
    if not trace.timed and (source.start_s or source.duration_s is not None or source.tick_s is not None):
        message = "start_s, duration_s and tick_s need arrival times, which token streams lack; use max_requests"
        raise ScenarioError([Problem(str(trace.path), _KEY, message)])
    start_ns = round(source.start_s * 1e9)
    first = int(np.searchsorted(trace.arrival_ns, start_ns))
    last = len(trace)
    if source.duration_s is not None:
        last = int(np.searchsorted(trace.arrival_ns, start_ns + round(source.duration_s * 1e9)))
    if source.max_requests is not None:
        last = min(last, first + source.max_requests)
    if first >= last:
        span = f"the trace spans {trace.arrival_ns[0] / 1e9:g} s to {trace.span_s:g} s"
        raise ScenarioError([Problem(str(trace.path), _KEY, f"no requests in the window; {span}")])
    return trace.rows(slice(first, last), start_ns)
