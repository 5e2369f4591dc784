"""Reading token streams: three forms, and everything wrong with them at once."""

import gzip
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from sim.errors import ScenarioError
from sim.token_streams.streams import TokenStreams, holds_streams, read_streams

made_up = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("synthetic.py"))))
REQUESTS = [([1, 2, 3], [4, 5]), ([6], [7, 8, 9])]


@pytest.fixture
def write(tmp_path):
    def to_file(text, name="s.jsonl"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return to_file


def parquet(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_positions_point_at_the_last_known_token():
    streams = TokenStreams.of(REQUESTS)
    assert streams.offset.tolist() == [0, 5, 9]
    assert streams.known_ends.tolist() == [3, 6, 7]
    assert streams.request_ends.tolist() == [5, 9, 9]
    assert list(streams.requests()) == REQUESTS


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_json_lines(write, name):
    path = write(made_up.text(REQUESTS), name)
    assert list(read_streams(path).requests()) == REQUESTS
    assert read_streams(path).comparable
    assert holds_streams(path)


def test_relabelled_csv(write):
    path = write("request,prompt_tokens,output_tokens,labels\n0,3,2,1 2 3 4 5\n1,1,3,6 7 8 9\n", "s.csv.gz")
    assert list(read_streams(path).requests()) == REQUESTS
    assert not read_streams(path).comparable
    assert holds_streams(path)


def test_parquet(tmp_path):
    prompts, outputs = zip(*REQUESTS, strict=True)
    path = parquet(tmp_path / "s.parquet", prompt_token_ids=prompts, output_token_ids=outputs, text=["a", "b"])
    assert list(read_streams(path).requests()) == REQUESTS
    assert holds_streams(path)


def test_a_changed_file_is_read_again(write):
    assert len(read_streams(write(made_up.text(REQUESTS)))) == 2
    assert len(read_streams(write(made_up.text(REQUESTS[:1])))) == 1


def problems(path):
    with pytest.raises(ScenarioError) as error:
        read_streams(path)
    return [f"{p.where.rpartition('/')[2]} {p.key}: {p.message}" for p in error.value.problems]


def test_every_fault_of_json_lines_at_once(write):
    good = {"prompt_token_ids": [1], "output_token_ids": [2, 3], "request": "a"}
    rows = [
        good,
        {"prompt_token_ids": [1]},
        good | {"output_token_ids": []},
        good | {"prompt_token_ids": [1, 2.5], "output_token_ids": [-1]},
        good | {"prompt_token_ids": "12"},
        good | {"promt": []},
        good | {"output_token_ids": [1, True]},
    ]
    path = write("".join(json.dumps(row) + "\n" for row in rows) + "[1]\n{\n" + json.dumps(good))
    assert problems(path) == [
        "s.jsonl:2 output_token_ids: missing",
        "s.jsonl:3 output_token_ids: is empty; allowed: at least one token",
        "s.jsonl:4 prompt_token_ids: expected token ids, whole numbers 0 to 2147483647, found '2.5' at [1]",
        "s.jsonl:4 output_token_ids: expected token ids, whole numbers 0 to 2147483647, found '-1' at [0]",
        "s.jsonl:5 prompt_token_ids: expected a list of token ids, found '12'",
        "s.jsonl:6 promt: unknown key; allowed: prompt_token_ids, output_token_ids, request",
        "s.jsonl:7 output_token_ids: expected token ids, whole numbers 0 to 2147483647, found 'True' at [1]",
        "s.jsonl:8 : expected a JSON object, found '[1]'",
        "s.jsonl:9 : not a JSON object: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ]


def test_every_fault_of_csv_at_once(write):
    rows = ["2,2,1 2 3", "0,2,1 2", "1,x,1 2", "1,1,1 b", "1,1", "1,1,-1 2"]
    path = write("prompt_tokens,output_tokens,labels\n" + "\n".join(rows) + "\n", "s.csv")
    found = problems(path)
    assert [line.split(" ")[0] for line in found] == [f"s.csv:{n}" for n in (2, 3, 4, 5, 6, 7)]
    assert found[0] == "s.csv:2 labels: has 3 ids; prompt_tokens and output_tokens say 2 + 2"
    assert found[1] == "s.csv:3 prompt_tokens: expected a number of tokens, at least 1, found '0'"
    assert found[3] == "s.csv:5 labels: expected whole numbers 0 to 2147483647, found 'b'"
    assert "expected 3 fields, found 2" in found[4]


def test_other_files(write, tmp_path):
    assert "no column labels" in problems(write("prompt_tokens,output_tokens\n1,2\n", "a.csv"))[0]
    assert "header but no requests" in problems(write("prompt_tokens,output_tokens,labels\n", "b.csv"))[0]
    assert "is empty" in problems(write(" \n", "c.jsonl"))[0]
    assert "cannot be read" in problems(tmp_path / "none.jsonl")[0]
    assert "cannot be read" in problems(write("PAR1nothing", "d.parquet"))[0]
    assert "no column output_token_ids" in problems(parquet(tmp_path / "e.parquet", prompt_token_ids=[[1]]))[0]
    empty = parquet(tmp_path / "f.parquet", prompt_token_ids=[[1], [1], [-5]], output_token_ids=[[], None, [1]])
    assert [line.split(":")[0] for line in problems(empty)] == ["f.parquet"] * 3
    assert not holds_streams(write("arrival_s,input_tokens,output_tokens\n0,1,1\n", "g.csv"))


def test_the_shipped_streams_are_those_of_the_generator():
    assert made_up.SHIPPED.read_text(encoding="utf-8") == made_up.text(made_up.code_editing(80, seed=7))
    assert made_up.SHIPPED.stat().st_size < 200_000
    assert np.all(read_streams(made_up.SHIPPED).output_tokens > 20)
