"""K by batch size: vLLM's table and TensorRT-LLM's schedule."""

import pytest
from pydantic import ValidationError

from sim.draft_length.base import TableRule
from sim.draft_length.batch_table import BatchTable, check_ranges
from sim.draft_length.draft_len_schedule import DraftLenSchedule
from sim.draft_length.fixed import Fixed


def test_gaps_and_the_tail_inherit() -> None:
    table = BatchTable(num_speculative_tokens_per_batch_size=[[1, 4, 5], [8, 16, 2], [33, 64, 0]]).table(5)
    batches = (1, 4, 5, 7, 8, 16, 17, 32, 33, 64, 65, 10_000)
    expected = [5] * 4 + [2] * 4 + [0] * 4
    assert [table.at(n) for n in batches] == expected


def test_fixed_is_a_table_of_one_range() -> None:
    table = BatchTable(num_speculative_tokens_per_batch_size=[[1, 8, 3]]).table(3)
    assert all(table.at(n) == Fixed().table(3).at(n) == 3 for n in range(1, 100))


def test_schedule_of_tensorrt_llm_reads_upper_bounds() -> None:
    """The example of its documentation: 4 up to batch size 4, 2 up to 8, 1 up to 32, none above."""
    table = DraftLenSchedule(draft_len_schedule=[[4, 4], [8, 2], [32, 1]]).table(4)
    assert [table.at(n) for n in (1, 4, 5, 8, 9, 32, 33, 999)] == [4, 4, 2, 2, 1, 1, 0, 0]


def test_a_batch_table_can_be_written_as_a_schedule() -> None:
    ranges = [[1, 4, 4], [5, 8, 2], [9, 32, 1], [33, 1024, 0]]
    vllm = BatchTable(num_speculative_tokens_per_batch_size=ranges).table(4)
    trtllm = DraftLenSchedule(draft_len_schedule=[[last, k] for _, last, k in ranges[:-1]]).table(4)
    assert vllm == trtllm == TableRule((1, 5, 9, 33), (4, 2, 1, 0))


def test_max_concurrency_is_a_schedule_of_one_step() -> None:
    assert DraftLenSchedule(max_concurrency=16).table(3) == DraftLenSchedule(draft_len_schedule=[[16, 3]]).table(3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "either draft_len_schedule or max_concurrency"),
        ({"max_concurrency": 4, "draft_len_schedule": [[4, 4]]}, "either draft_len_schedule or max_concurrency"),
        ({"draft_len_schedule": [[8, 4], [4, 2]]}, "must rise; found 4 after 8"),
        ({"draft_len_schedule": []}, "at least 1 item"),
    ],
)
def test_schedules_that_tensorrt_llm_refuses(keys: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DraftLenSchedule(**keys)
    assert DraftLenSchedule(draft_len_schedule=[[4, 9]]).wrong_for(5) == (
        "K = 9; allowed: at most num_speculative_tokens = 5"
    )


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([], "at least one"),
        ([(2, 4, 3)], "start at batch size 1"),
        ([(1, 4, 3), (4, 8, 2)], "must lie above 4"),
        ([(1, 4, 3), (8, 6, 2)], "must lie above"),
        ([(1, 4, 6)], "outside 0..num_speculative_tokens = 5"),
        ([(1, 4, -1)], "outside 0.."),
    ],
)
def test_tables_that_vllm_refuses(ranges: list[tuple[int, int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_ranges(ranges, 5)
    assert message in BatchTable(num_speculative_tokens_per_batch_size=ranges).wrong_for(5)
