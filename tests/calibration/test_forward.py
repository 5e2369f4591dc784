import json
from typing import Any

import pytest

from sim.calibration.forward_json import Step, parse_forward
from sim.calibration.problems import Problems
from sim.cost.passes import plain_pass, verify_pass


def case(name: str, count: int, new: int, kv: int, drafts: int = 0, **more: Any) -> dict[str, Any]:
    request = {"query_len": new, "kv_len": kv, "num_draft_tokens": drafts}
    return {"case": name, "requests": [request] * count, "median_us": 6000.0, "ranks": 1, **more}


def read(document: Any) -> tuple[list[Step], list[str]]:
    problems = Problems()
    steps = parse_forward("f.json", document if isinstance(document, str) else json.dumps(document), problems)
    return steps, problems.lines()


def test_cases_become_the_passes_that_the_server_prices() -> None:
    steps, lines = read([case("decode=32*1@8192", 32, 1, 8192), case("verify=16*4@4096:3", 16, 4, 4096, 3)])
    assert lines == []
    assert [step.forward for step in steps] == [plain_pass(32, 8191), verify_pass(16, 4092, 3)]
    assert [(step.row, step.group, step.ranks) for step in steps] == [
        (1, "decode@8192-8192", 1),
        (2, "verify@4096-4096", 1),
    ]


def test_mixed_batches_keep_their_classes_apart() -> None:
    both = case("mixed", 2, 1, 100)
    both["requests"] += [{"query_len": 512, "kv_len": 512}]
    (step,), _ = read({"results": [both]})
    assert step.forward.decode == (2, 2, 200, 200)
    assert step.forward.extend == (1, 512, 512, 512 * 513 // 2)
    assert step.forward.num_logit_rows == 3


def test_ranks_may_be_a_number_or_a_list() -> None:
    steps, _ = read([case("a", 1, 1, 8, ranks=4), case("b", 1, 1, 8, ranks=[{}, {}])])
    assert [step.ranks for step in steps] == [4, 2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"median_us": -1}, "median_us: not a finite time above 0 (row 2)"),
        ({"median_us": "6 ms"}, "median_us: not a finite time above 0 (row 2)"),
        ({"median_us": True}, "median_us: not a finite time above 0 (row 2)"),
        ({"requests": []}, "requests: must be a list"),
        ({"requests": [{"query_len": 4, "kv_len": 3}]}, "requests: need whole numbers, 0 < query_len <= kv_len"),
        ({"requests": [{"query_len": 4, "kv_len": 9, "num_draft_tokens": 4}]}, "requests: need whole numbers"),
        ({"ranks": 0}, "ranks: not a whole number"),
    ],
)
def test_bad_cases_are_named_with_their_number(change: dict[str, Any], said: str) -> None:
    steps, lines = read([case("a", 1, 1, 8), case("b", 1, 1, 8, **change)])
    assert [step.row for step in steps] == [1]
    assert len(lines) == 1
    assert lines[0].startswith(f"f.json: {said}")


@pytest.mark.parametrize(
    "text", ["", "{", "{}", "[]", "[1]", '[{"case": "a"}]', '[{"median_us": NaN, "requests": []}]']
)
def test_what_is_no_such_file_is_refused(text: str) -> None:
    steps, lines = read(text)
    assert steps == []
    assert lines
