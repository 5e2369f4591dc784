"""vLLM's `num_speculative_tokens_per_batch_size`."""

import pytest

from sim.draft_length.batch_table import BatchTable, check_ranges
from sim.draft_length.fixed import Fixed


def test_gaps_and_the_tail_inherit() -> None:
    table = BatchTable.from_ranges([(1, 4, 5), (8, 16, 2), (33, 64, 0)])
    batches = (1, 4, 5, 7, 8, 16, 17, 32, 33, 64, 65, 10_000)
    expected = [5] * 4 + [2] * 4 + [0] * 4
    assert [table.choose(n) for n in batches] == expected


def test_fixed_is_a_table_of_one_range() -> None:
    table = BatchTable.from_ranges([(1, 8, 3)])
    assert all(table.choose(n) == Fixed(3).choose(n) for n in range(1, 100))


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
