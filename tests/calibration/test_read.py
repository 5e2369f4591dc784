from pathlib import Path

import pytest

from sim.calibration.problems import Problems
from sim.calibration.read import FORMS, parse_table, read_source

GEMM = "gpu,stack,dtype,m,n,k,time_us\nH100-SXM,x,bfloat16,1,1024,8192,17.9\nL40S,x,bfloat16,2,1024,8192,16.3\n"


def read(text: str) -> tuple[object, list[str]]:
    problems = Problems()
    return parse_table("t.csv", text, problems), problems.lines()


def test_forms_are_recognised_by_columns_not_by_name() -> None:
    for form in FORMS:
        cells = {name: "H100-SXM" if name == "gpu" else "2" for name in form.required}
        text = f"{','.join(cells)},extra\n{','.join(cells.values())},?\n"
        table = parse_table("anything.txt", text, Problems())
        assert table is not None
        assert table.form == form.name
        assert table.numbers["time_us"].tolist() == [2.0]


def test_rows_are_numbered_as_lines_and_kept_by_a_mask() -> None:
    table = parse_table("t.csv", GEMM, Problems())
    assert table is not None
    assert table.rows == (2, 3)
    kept = table.where([False, True])
    assert (kept.rows, kept.texts["gpu"], kept.numbers["m"].tolist()) == ((3,), ("L40S",), [2.0])


@pytest.mark.parametrize("time", ["nan", "inf", "-3", "0", "", "1,000", "fast"])
def test_times_that_are_none_are_named_with_their_row(time: str) -> None:
    cell = f'"{time}"'
    table, lines = read(GEMM + f"L40S,x,bfloat16,4,1024,8192,{cell}\nL40S,x,bfloat16,4,1024,8192,{cell}\n")
    assert lines == ["t.csv: time_us: not a finite time above 0 (rows 4, 5)"]
    assert table.rows == (2, 3)  # type: ignore[attr-defined]


def test_all_problems_of_a_file_at_once() -> None:
    text = GEMM + "H900,x,bfloat16,1,1,1,1\nL40S,x,,1.5,0,1,-1\nL40S,x\n"
    _, lines = read(text)
    assert [line.split(": ", 1)[1] for line in lines] == [
        "not 7 cells as in the header (row 6)",
        "gpu: unknown GPU 'H900' (see `specsim catalog gpus`) (row 4)",
        "dtype: is empty (row 5)",
        "m: not a whole number of at least 1 (row 5)",
        "n: not a whole number of at least 1 (row 5)",
        "time_us: not a finite time above 0 (row 5)",
    ]


def test_missing_columns_are_named_and_other_units_hinted_at() -> None:
    assert read(GEMM.replace(",k,time_us", ",kk,time_ms"))[1] == [
        "t.csv: looks like gemm but lacks the columns k, time_us; time_ms must be converted to time_us"
    ]
    assert "columns of no known table" in read("a,b\n1,2\n")[1][0]
    assert read("")[1][0].endswith("found: none")
    assert read(GEMM.splitlines()[0])[1] == ["t.csv: has no rows"]


def test_many_rows_are_counted_not_listed() -> None:
    _, lines = read(GEMM + "L40S,x,bfloat16,4,1024,8192,-1\n" * 30)
    assert lines == [
        f"t.csv: time_us: not a finite time above 0 (rows {', '.join(map(str, range(4, 14)))} and 20 more)"
    ]


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    problems = Problems()
    (tmp_path / "bin.csv").write_bytes(b"\xff\xfe\x00")
    assert read_source(tmp_path / "none.csv", problems) is None
    assert read_source(tmp_path / "bin.csv", problems) is None
    assert "No such file" in problems.lines()[0]
    assert "not UTF-8" in problems.lines()[1]


def test_shipped_tables_read_without_a_problem(shared_data: Path) -> None:
    forms = set()
    for name in ("gemm", "attention_decode", "attention_prefill", "attention_mixed", "layers", "collectives", "moe"):
        problems = Problems()
        found = read_source(shared_data / "gpu_timings" / f"{name}.csv", problems)
        assert found is not None
        table = parse_table(name, found[1], problems)
        assert problems.lines() == []
        assert table is not None
        forms.add((name, table.form))
    assert all(name == form for name, form in forms)
