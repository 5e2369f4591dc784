"""Strict YAML: a text in, data with positions out, and documented errors only.

Scalars follow JSON: `1e3` is a number, only `true`, `false` and `null` are special, and what merely looks like a number
(`012`, `60:30`, `.5`, `.nan`) is an error. Anchors, aliases, tags, duplicate keys, further documents, control
characters and oversized or deeply nested input are refused. Works on parser events, so nothing recurses on input.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from sim.errors import Problem, ScenarioError
from sim.scenario.document import Mark, Node, Scalar, Source, dotted

MAX_BYTES = 1 << 20
MAX_DEPTH = 50
MAX_NODES = 100_000
MAX_PROBLEMS = 100

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_LOOKALIKE = re.compile(
    r"[-+]?(?:\d[\d_]*(?::\d+)+(?:\.\d*)?|0[xXoObB][\da-fA-F_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d*)?)"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    re.ASCII,
)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def read_yaml(data: bytes, name: str) -> tuple[Node, list[Problem]]:
    """Parse one document.

    Args:
        data: the file's bytes.
        name: how messages call the file.

    Returns:
        The data, and what is wrong with single values in it (bad numbers, duplicate keys, tags, ...): those values
        are kept as text or null, so that validation can go on and all problems are told at once.

    Raises:
        ScenarioError: the text cannot be read to its end.
    """
    text = _decode(data, name)
    reader = _Reader(Source.of(name, text))
    try:
        _feed(reader, text)
    except yaml.YAMLError as error:
        reader.problems.append(reader.syntax_problem(error))
        raise ScenarioError(reader.problems) from None
    except _StopError:
        raise ScenarioError(reader.problems) from None
    return reader.root or Node(None, Mark(reader.source, 0, 0)), reader.problems


def resolve_plain(text: str) -> Scalar:
    """What an unquoted scalar means.

    Raises:
        ValueError: it looks like a number but is none in JSON's grammar, or is too large.
    """
    if text in ("", "null"):
        return None
    if text in ("true", "false"):
        return text == "true"
    match = _NUMBER.fullmatch(text)
    if match is None:
        if _LOOKALIKE.fullmatch(text):
            raise ValueError(f"{_short(text)} is no number; write it as in 12, 0.5 or 1e3, or quote it as text")
        return text
    if match[1] is None and match[2] is None and len(text) < 20:
        return int(text)
    number = float(text)
    if not math.isfinite(number) or (match[1] is None and match[2] is None):
        raise ValueError(f"{_short(text)} is too large for a number")
    return number


def _short(text: str, width: int = 40) -> str:
    return repr(text if len(text) <= width else text[:width] + "...")


def _decode(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise _refusal(name, f"file has {len(data)} bytes; allowed: 1 MiB")
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise _refusal(name, f"not UTF-8: byte 0x{data[error.start]:02x}", before) from None
    if match := _FORBIDDEN.search(text):
        raise _refusal(name, f"control character U+{ord(match[0]):04X} is not allowed", text[: match.start()])
    return text


def _refusal(name: str, message: str, before: str = "") -> ScenarioError:
    """An error right behind the text `before`."""
    lines = (before + ".").splitlines()
    return ScenarioError([Problem(f"{name}:{len(lines)}:{len(lines[-1])}", "", message)])


class _StopError(Exception):
    """Reading on makes no sense; the problem is recorded."""


def _feed(reader: "_Reader", text: str) -> None:
    loader = _LOADER(text)
    try:
        while loader.check_event():
            reader.take(loader.get_event())
    finally:
        loader.dispose()


@dataclass(slots=True)
class _Frame:
    """An open mapping or sequence."""

    children: Any
    mark: Mark
    key: str | None = None
    key_mark: Mark | None = None


@dataclass(slots=True)
class _Reader:
    """Builds nodes from parser events and collects problems."""

    source: Source
    problems: list[Problem] = field(default_factory=list)
    root: Node | None = None
    frames: list[_Frame] = field(default_factory=list)
    num_nodes: int = 0
    num_documents: int = 0

    def mark(self, place: Any) -> Mark:
        return Mark(self.source, place.line, place.column)

    def complain(self, mark: Mark, message: str) -> None:
        self.problems.append(mark.problem(self.key(), message))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _StopError

    def stop(self, mark: Mark, message: str) -> NoReturn:
        """A last problem, after which nothing is read."""
        self.complain(mark, message)
        raise _StopError

    def syntax_problem(self, error: yaml.YAMLError) -> Problem:
        place, context = getattr(error, "problem_mark", None), getattr(error, "context", None)
        mark = self.mark(place) if place else Mark(self.source, 0, 0)
        message = f"invalid YAML: {getattr(error, 'problem', None) or 'cannot be parsed'}"
        return mark.problem("", f"{message} ({context})" if context else message)

    def key(self) -> str:
        """Dotted key of the innermost open place."""
        steps = (frame.key if isinstance(frame.children, dict) else len(frame.children) for frame in self.frames)
        return dotted([step for step in steps if step is not None])

    def take(self, event: Any) -> None:
        """Dispatch one parser event."""
        if isinstance(event, yaml.DocumentStartEvent):
            self.start_document(event)
        elif isinstance(event, yaml.ScalarEvent):
            self.scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self.open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            frame = self.frames.pop()
            self.add(frame.children, frame.mark)
        elif isinstance(event, yaml.AliasEvent):
            self.alias(event)

    def start_document(self, event: Any) -> None:
        self.num_documents += 1
        if self.num_documents > 1:
            self.stop(self.mark(event.start_mark), "a second document starts here; allowed: one per file")

    def alias(self, event: Any) -> None:
        mark = self.mark(event.start_mark)
        message = f"alias *{event.anchor} is not allowed; write the value out, or use `extends`"
        if self.wants_key():
            self.stop(mark, message)
        self.complain(mark, message)
        self.add(None, mark)

    def open(self, event: Any) -> None:
        mark = self.mark(event.start_mark)
        self.check_properties(event, mark)
        if self.wants_key():
            self.stop(mark, "a key must be a word, not a list or mapping")
        if len(self.frames) >= MAX_DEPTH:
            self.stop(mark, f"nested too deeply; allowed: {MAX_DEPTH} levels")
        self.frames.append(_Frame({} if isinstance(event, yaml.MappingStartEvent) else [], mark))

    def scalar(self, event: Any) -> None:
        mark = self.mark(event.start_mark)
        self.check_properties(event, mark)
        if self.wants_key():
            self.start_key(event.value, mark)
            return
        value: Scalar = event.value
        try:
            value = resolve_plain(event.value) if event.implicit[0] else event.value
        except ValueError as error:
            self.complain(mark, str(error))
        if isinstance(value, str) and _FORBIDDEN.search(value):
            self.complain(mark, "control characters are not allowed, not even escaped")
        self.add(value, mark)

    def check_properties(self, event: Any, mark: Mark) -> None:
        if event.anchor is not None:
            self.complain(mark, f"anchor &{event.anchor} is not allowed; write the value out where it is needed")
        if event.tag is not None:
            self.complain(mark, f"tag {event.tag} is not allowed")

    def wants_key(self) -> bool:
        return bool(self.frames) and isinstance(self.frames[-1].children, dict) and self.frames[-1].key is None

    def start_key(self, key: str, mark: Mark) -> None:
        frame = self.frames[-1]
        frame.key, frame.key_mark = key, mark
        if not key or _FORBIDDEN.search(key):
            self.complain(mark, "a key must be a word")
        elif key in frame.children:
            first = frame.children[key].key_mark
            self.complain(mark, f"duplicate key; first given in line {first.line + 1}")

    def add(self, value: Any, mark: Mark) -> None:
        """Hang a finished value into the innermost open place."""
        self.num_nodes += 1
        if self.num_nodes > MAX_NODES:
            self.stop(mark, f"too many values; allowed: {MAX_NODES} per file")
        if not self.frames:
            self.root = Node(value, mark)
            return
        frame = self.frames[-1]
        if isinstance(frame.children, list):
            frame.children.append(Node(value, mark))
        else:
            frame.children.setdefault(frame.key, Node(value, mark, frame.key_mark))
            frame.key = None
