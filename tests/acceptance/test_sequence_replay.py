"""Recorded sequences: reading, refusing, pairing, cutting and cycling."""

import gzip

import numpy as np
import pytest

from sim.acceptance.recording import read_recording
from sim.acceptance.sequence_replay import SequenceReplay
from sim.acceptance.walk import walk
from sim.errors import ScenarioError
from sim.rng import Streams
from sim.scenario.arms import Arm
from sim.workload.requests import RequestTable

HEADER = "request,method,prompt_tokens,output_tokens,degenerate,accepted,drafted\n"


def table(output_tokens):
    output_tokens = np.asarray(output_tokens, dtype=np.int64)
    zeros = np.zeros(len(output_tokens), dtype=np.int64)
    return RequestTable(zeros, zeros + 1, output_tokens, zeros, np.ones(len(output_tokens), dtype=bool))


@pytest.fixture
def write(tmp_path):
    def to_file(text, name="a.csv"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return SequenceReplay(path=name).located(tmp_path)

    return to_file


def test_letters_are_counts_clipped_at_the_end(write):
    recording = write(HEADER + "0,eagle,9,6,0,bacuz,\n").recording()
    assert [row.tolist() for row in recording.accepted] == [[1, 0, 2, 1, 0]]
    assert recording.proposed is None
    assert recording.table().output_tokens.tolist() == [6]


def test_walk_over_a_recording(write):
    model = write(HEADER + "0,eagle,9,8,0,cbadaba,\n", "a.csv.gz")
    requests, tape = model.recording().table(), model.recording().tape(5)
    found = walk(tape, requests, 5)  # positions 1 (accepts 2), 4 (accepts 3), so 2 steps for 7 tokens
    assert (found.steps.tolist(), found.tokens_per_step) == ([2], 3.5)
    assert found.accepted_counts.tolist() == [0, 0, 1, 1, 0, 0]
    assert walk(tape, requests, 1).accepted_counts.tolist() == [1, 3]  # c cut, a, d cut, b
    assert walk(tape, requests, 0).steps.tolist() == [7]
    assert model.survival(5) == pytest.approx([1.0, 1.0, 0.5, 0.0, 0.0])


def test_ngram_rows_carry_what_was_drafted(write):
    model = write(HEADER + "0,ngram,9,6,0,acbaa,aecba\n")
    tape = model.tape(table([6]), 3, Streams(0))
    assert tape.accepted.tolist() == [0, 0, 2, 1, 0, 0]
    assert tape.proposed is not None
    assert tape.proposed.tolist() == [0, 0, 3, 2, 1, 0]
    found = walk(tape, table([6]), 3)
    assert (found.steps.tolist(), found.drafted_steps, found.drafted_tokens) == ([3], 1, 3)


def test_longer_rows_go_on_with_whole_recordings_and_shorter_ones_are_cut(write):
    model = write(HEADER + "0,eagle,1,4,0,cba,\n1,eagle,1,5,0,aaaa,\n")
    for seed in range(8):
        tape = model.tape(table([12, 3]), 9, Streams(seed)).accepted.tolist()
        first, second = [2, 1, 0], [0, 0, 0, 0]
        both = {tuple((first + second) * 2)[:11], tuple((second + first) * 2)[:11]}
        assert tuple(tape[1:12]) in both
        assert tuple(tape[13:]) in {(2, 1), (0, 0)}


def test_rows_get_recordings_of_similar_length(write):
    rows = "".join(f"{n},eagle,1,{n + 1},0,{'b' * n if n > 100 else 'a' * n},\n" for n in range(1, 201))
    model = write(HEADER + rows)
    tape = model.tape(table([30, 180]), 5, Streams(2))
    assert tape.accepted[:30].max() == 0
    assert tape.accepted[31:150].min() == 1


def test_arms_find_their_recording_beside_the_scenario(write, tmp_path):
    write(HEADER + "0,eagle,1,4,0,cba,\n")
    recorded = SequenceReplay(path="a.csv")
    arm = Arm(acceptance=recorded, class_acceptance={"chat": recorded}).located(tmp_path)
    assert arm.acceptance.survival(2).tolist() == [1.0, 1.0]
    assert arm.class_acceptance["chat"].path == str(tmp_path / "a.csv")
    assert Arm().located(tmp_path) == Arm()


def test_degenerate_requests_are_left_out_unless_asked(write, tmp_path):
    model = write(HEADER + "0,eagle,1,4,0,aaa,\n1,eagle,1,4,1,cba,\n")
    assert model.survival(2).tolist() == [0.0, 0.0]
    everything = model.model_copy(update={"include_degenerate": True})
    assert everything.survival(2)[0] > 0


BAD = [
    ("", "no column method and no column accepted"),
    ("request,accepted\n0,abc\n", "no column method"),
    (HEADER, "no column method"),
    (HEADER + "0,eagle,1,4,0,aBc,\n", ":2: accepted must be letters a-z"),
    (HEADER + "0,eagle,1,4,0,abc,\n1,eagle,1,4,0,a1c,\n", ":3: accepted must be letters a-z"),
    (HEADER + "0,ngram,1,4,0,aaa,aa\n", ":2: drafted has 2 positions, accepted 3"),
    (HEADER + "0,ngram,1,4,0,aaa,a-a\n", ":2: drafted must be letters a-z"),
    (HEADER + "0,eagle,1,4,1,aaa,\n", "no usable request"),
    (HEADER + "0,eagle,1,1,0,,\n", "no usable request"),
    (HEADER + "0,eagle,1,4,0,aaa,\n1,ngram,1,4,0,aaa,aaa\n", "several methods recorded, name one: eagle, ngram"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_files_are_refused_with_their_row(write, text, message):
    with pytest.raises(ScenarioError, match=message):
        write(text).tape(table([5]), 2, Streams(0))


def test_missing_unreadable_and_misspelt(write, tmp_path):
    with pytest.raises(ScenarioError, match="cannot read acceptance sequences"):
        SequenceReplay(path="nothing.csv").located(tmp_path).survival(2)
    (tmp_path / "broken.csv.gz").write_bytes(b"not gzip")
    (tmp_path / "latin.csv").write_bytes(b"method,accepted\n\xff,a\n")
    for name in ("broken.csv.gz", "latin.csv"):
        with pytest.raises(ScenarioError, match="cannot read acceptance sequences"):
            read_recording(tmp_path / name, None, False)
    write(HEADER + "0,eagle,1,4,0,aaa,\n", "b.csv")
    with pytest.raises(ScenarioError, match="did you mean 'eagle'"):
        SequenceReplay(path="b.csv", method="eagel").located(tmp_path).survival(2)
