import sys
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.scenario.document import walk
from sim.scenario.yaml_reader import MAX_BYTES, MAX_DEPTH, read_yaml, resolve_plain


def read(text: str | bytes) -> object:
    root, problems = read_yaml(text.encode() if isinstance(text, str) else text, "s.yaml")
    assert problems == []
    return root.plain()


def complaints(text: str | bytes) -> list[str]:
    """`line:column message` of everything wrong."""
    try:
        _, problems = read_yaml(text.encode() if isinstance(text, str) else text, "s.yaml")
    except ScenarioError as error:
        problems = list(error.problems)
    return [f"{problem.where.removeprefix('s.yaml:')} {problem.message}" for problem in problems]


def test_scalars_follow_json_and_yaml_1_2() -> None:
    text = "{a: 1e3, b: -2.5E-1, c: 0, d: yes, e: No, f: 2026-11-21, g: 1.0.2, h: 8k, i: '012', j: null, k: true, l: ~}"
    expected = {
        "a": 1000.0, "b": -0.25, "c": 0, "d": "yes", "e": "No", "f": "2026-11-21", "g": "1.0.2", "h": "8k",
        "i": "012", "j": None, "k": True, "l": "~",
    }  # fmt: skip
    assert read(text) == expected
    assert isinstance(resolve_plain("7"), int)


@pytest.mark.parametrize(
    "text", ["012", "60:30", "1:30:00", ".5", "5.", "+3", "0x1f", "0o17", "1_000", ".nan", ".inf", "-.INF", "1e", "00"]
)
def test_what_only_looks_like_a_number_is_refused(text: str) -> None:
    assert complaints(f"a: {text}")[0].startswith(f"1:4 {text!r} is no number")


@pytest.mark.parametrize("text", ["1e999", "9" * 5000, "123456789012345678901"])
def test_numbers_beyond_all_bounds_are_refused(text: str) -> None:
    assert "too large" in complaints(f"a: {text}")[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1 duplicate key; first given in line 1"),
        ("a: &x [1]\n", "1:4 anchor &x is not allowed"),
        ("a: [1, *x]\n", "1:8 alias *x is not allowed"),
        ("a: !!str 5\n", "1:4 tag tag:yaml.org,2002:str is not allowed"),
        ("a: !!python/object:os.system x\n", "1:4 tag tag:yaml.org,2002:python/object:os.system is not allowed"),
        ("a: 1\n---\nb: 2\n", "2:1 a second document starts here"),
        ("? [a]\n: b\n", "1:3 a key must be a word, not a list or mapping"),
        ("*x : b\n", "1:1 alias *x is not allowed"),
        ('"": 1\n', "1:1 a key must be a word"),
        ("a: b\n c: d: e\n", "2:3 invalid YAML: mapping values are not allowed in this context"),
        ("a: [1,\n", "2:1 invalid YAML"),
        ("a: 'b\n", "2:1 invalid YAML"),
        ('a: "x\\0y"\n', "1:4 control characters are not allowed, not even escaped"),
        ("é: ab\x00", "1:6 control character U+0000 is not allowed"),
        ("a: 1\nb: \x07", "2:4 control character U+0007 is not allowed"),
    ],
)
def test_refusals_point_at_the_place(text: str, complaint: str) -> None:
    assert complaints(text)[0].startswith(complaint)


def test_all_wrong_values_are_told_at_once_and_reading_goes_on() -> None:
    root, problems = read_yaml(b"a: 012\nb: &x 1\nc: 1\nc: 2\nd: [60:30]\n", "s.yaml")
    assert [(problem.where, problem.key) for problem in problems] == [
        ("s.yaml:1:4", "a"), ("s.yaml:2:4", "b"), ("s.yaml:4:1", "c"), ("s.yaml:5:5", "d[0]"),
    ]  # fmt: skip
    assert root.plain() == {"a": "012", "b": 1, "c": 1, "d": ["60:30"]}


def test_not_utf8_and_other_encodings_are_refused() -> None:
    assert complaints(b"a: 1\nb: \xff") == ["2:4 not UTF-8: byte 0xff"]
    assert complaints("a: 1".encode("utf-16"))[0].startswith("1:1 not UTF-8")
    assert read(b"\xef\xbb\xbfa: 1") == {"a": 1}


BOMBS = {
    "deep lists": b"a: " + b"[" * 100_000,
    "deep maps": b"{a: " * 100_000,
    "deep blocks": b"- " * 100_000,
    "deep keys": b"? " * 100_000,
    "aliases": b"a: &a [x,x]\n"
    + b"".join(b"%c: &%c [*%c,*%c]\n" % (98 + i, 98 + i, 97 + i, 97 + i) for i in range(24)),
    "large": b"a: " + b"x" * MAX_BYTES,
    "many values": b"a:\n" + b" - 1\n" * 200_000,
    "same key": b"{" + b"a,\n" * 300_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_quickly(name: str) -> None:
    start = time.process_time()
    assert complaints(BOMBS[name])
    assert time.process_time() - start < (2.0 if name == "many values" else 0.5)


def test_depth_limit_is_exact() -> None:
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert "nested too deeply" in complaints("[" * (MAX_DEPTH + 1))[0]


def test_excerpt_puts_the_caret_below_the_place_even_in_long_lines() -> None:
    for text in ("arms: 012", "x" * 300 + ": 012", "\ta: 012"):
        _, problems = read_yaml(text.encode(), "s.yaml") if text[0] != "\t" else (None, [])
        for problem in problems:
            line, caret = problem.excerpt.splitlines()
            assert line[caret.index("^") :].startswith("012")
            assert len(line) < 120


def test_the_pure_python_parser_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"a: 1e3\nb: [yes, 012]\nc: {d: 'x', d: 2}\ne: &x 1\n"
    fast = read_yaml(text, "s.yaml")
    monkeypatch.setattr("sim.scenario.yaml_reader._LOADER", yaml.SafeLoader)
    slow = read_yaml(text, "s.yaml")
    assert slow[0].plain() == fast[0].plain()
    assert [(p.where, p.message) for p in slow[1]] == [(p.where, p.message) for p in fast[1]]


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=1000)
def test_fuzz_bytes_give_data_or_documented_errors(data: bytes) -> None:
    root, problems = None, []
    try:
        root, problems = read_yaml(data, "s.yaml")
    except ScenarioError as error:
        problems = list(error.problems)
    assert root is not None or problems
    assert all(problem.where.startswith("s.yaml:") and problem.message for problem in problems)
    assert root is None or all(node.mark is not None for _, node in walk(root))


YAML_TEXT = st.text(st.sampled_from(list("abé&*!|>-:?,[]{}#'\"\\%@` \n\t0129.eE+_~\u2028\ufeff")), max_size=60)


@given(YAML_TEXT)
@settings(max_examples=500, deadline=1000)
def test_fuzz_yaml_like_text_never_fails_otherwise(text: str) -> None:
    try:
        root, _ = read_yaml(text.encode(), "s.yaml")
    except ScenarioError:
        return
    lines = text.removeprefix("\ufeff").splitlines() or [""]
    for _, node in walk(root):
        assert node.mark is not None
        assert 0 <= node.mark.line <= len(lines)


def test_reading_does_not_depend_on_the_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    assert limit > 2 * MAX_DEPTH
    assert complaints(b"[" * 10 * limit)
