import io
import json
import math
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sim.errors import ResultsError
from sim.experiment.files import StorageError, csv_bytes, json_bytes, parquet_bytes, parquet_rows_bytes, write_bytes
from sim.experiment.journal import Journal, read_journal, write_journal
from sim.experiment.store import RunFolder, unfinished


def test_csv_cells_cannot_be_formulas_and_numbers_stay() -> None:
    rows = [{"a": "=1+1", "b": -2.5, "c": None}, {"a": "@x", "b": math.nan, "c": "-3"}]
    assert csv_bytes(rows, ["a", "b", "c"]).decode().splitlines() == ["a,b,c", "'=1+1,-2.5,", "'@x,,'-3"]
    assert csv_bytes([], ["a"]) == b"a\n"


def test_json_has_no_nan_and_takes_numpy() -> None:
    data = {"a": [math.inf, np.float64(1.5), np.int64(2)], "b": (math.nan,)}
    assert json.loads(json_bytes(data)) == {"a": [None, 1.5, 2], "b": [None]}


def test_parquet_round_trip_with_mixed_and_empty_columns() -> None:
    rows = [{"a": 1, "b": None, "c": "x"}, {"a": 2.5, "b": None, "c": 3}]
    table = pq.read_table(io.BytesIO(parquet_rows_bytes(rows, ["a", "b", "c"])))
    assert table.to_pydict() == {"a": [1.0, 2.5], "b": [None, None], "c": ["x", "3"]}
    again = pq.read_table(io.BytesIO(parquet_bytes({"x": np.arange(3), "y": np.array(["p", "q", "r"])})))
    assert again.to_pydict() == {"x": [0, 1, 2], "y": ["p", "q", "r"]}


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.txt"
    write_bytes(target, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left") as caught:
        write_bytes(target, b"new")
    assert caught.value.exit_code == 5
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.txt", b"old")]


def test_nothing_is_visible_before_publishing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "exp", "0123456789")
    folder.write("cells/x/y.json", b"{}")
    assert [p.name for p in (tmp_path / "exp").glob("[!.]*")] == []
    final = folder.publish()
    assert (final / "cells/x/y.json").read_bytes() == b"{}"
    assert final.name.endswith("-01234567")
    second = RunFolder(tmp_path, "exp", "0123456789")
    assert second.publish() != final


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "x" * 81])
def test_names_that_are_not_slugs_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ResultsError, match="cannot name a folder"):
        RunFolder(tmp_path, name, "00000000")


def test_writing_outside_the_folder_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "exp", "00000000")
    (folder.path / "link").symlink_to(tmp_path)
    for name in ("../x", "link/x", "/etc/x"):
        with pytest.raises(StorageError, match="leads out"):
            folder.write(name, b"")
    folder.discard()
    assert not folder.path.exists()


@pytest.mark.parametrize("blocked", ["file", "proc"])
def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path, blocked: str) -> None:
    place = tmp_path / "file"
    place.write_text("in the way")
    out = place if blocked == "file" else Path("/proc/nowhere")
    with pytest.raises(ResultsError, match="cannot be written there"):
        RunFolder(out, "exp", "00000000")


def test_litter_of_killed_runs_is_removed_and_that_of_living_ones_kept(tmp_path: Path) -> None:
    alive, resumable = RunFolder(tmp_path, "exp", "00000000"), tmp_path / "exp" / ".x-2.partial"
    dead = tmp_path / "exp" / ".x-1.partial"
    for folder in (dead, resumable):
        folder.mkdir()
        (folder / ".lock").write_text("pid 4194304999, since long ago\n")
    write_journal(resumable / "journal.jsonl", [{"experiment": "x"}, {"run": "cells/a/b/r0"}])
    RunFolder(tmp_path, "exp", "00000002").discard()
    assert (dead.exists(), alive.path.exists(), resumable.exists()) == (False, True, True)
    assert list(unfinished(tmp_path / "exp")) == [resumable]
    alive.discard()


def test_a_folder_that_somebody_works_on_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "exp", "00000000")
    with pytest.raises(ResultsError, match=f"another process works on it .pid {os.getpid()}"):
        RunFolder.reopen(folder.path)
    final = folder.publish()
    again = RunFolder.reopen(final)
    assert not final.exists()
    assert again.publish() == final


def test_a_journal_drops_damaged_lines_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    records = [{"experiment": "x"}, {"run": "a", "row": {"x": 0.1}}, {"run": "b", "row": {"x": None}}]
    for record in records:
        with Journal(path) as journal:
            journal.append(record)
    assert list(read_journal(path)) == records
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = list(read_journal(path))
        assert kept == records[: len(kept)]
        with Journal(path) as journal:
            journal.append({"run": "c"})
        assert list(read_journal(path))[-1] == {"run": "c"}
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert all(record in records for record in read_journal(path))
        assert len(list(read_journal(path))) >= len(records) - 2
