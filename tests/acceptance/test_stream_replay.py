"""Acceptance computed from token ids: pairing, clipping, and the recorded n-gram runs position by position."""

import numpy as np
import pytest

from sim.acceptance.iid import Iid
from sim.acceptance.pairing import laid_out
from sim.acceptance.replay_check import replay_mismatches
from sim.acceptance.sequence_replay import SequenceReplay
from sim.acceptance.stream_replay import StreamReplay, recorded
from sim.acceptance.walk import walk
from sim.errors import ScenarioError
from sim.proposers.base import copied
from sim.proposers.ngram import NgramLookup, longest_matches
from sim.rng import Streams
from sim.scenario.arms import Arm
from sim.speculation.eagle import Eagle
from sim.speculation.ngram import Ngram
from sim.speculation.suffix import Suffix
from sim.token_streams.streams import read_streams
from sim.workload.requests import RequestTable

ROW = '{{"prompt_token_ids": {}, "output_token_ids": {}}}\n'
CIRCLE = ROW.format([1, 2, 3, 4], [1, 2, 3, 4, 1, 2, 3])
NOTHING = ROW.format([1, 2, 3], [4, 5, 6, 7, 8])


def table(prompt_tokens, output_tokens):
    prompt, output = (np.asarray(lengths, dtype=np.int64) for lengths in (prompt_tokens, output_tokens))
    zeros = np.zeros(len(output), dtype=np.int64)
    return RequestTable(zeros, prompt, output, zeros, np.ones(len(output), dtype=bool))


@pytest.fixture
def write(tmp_path):
    def to_file(text, shortest=2, longest=3):
        (tmp_path / "s.jsonl").write_text(text)
        return StreamReplay(path="s.jsonl").located(tmp_path).drafted_by(NgramLookup(shortest, longest))

    return to_file


def test_drafts_are_computed_and_clipped_at_the_end(write):
    tape = write(CIRCLE).tape(table([4], [7]), 4, Streams(0))
    # after 1 2 3 4 1: no pair known; after ... 1 2: "3 4 1 2" is copied, all but the last output token can be drafts
    assert tape.proposed.tolist() == [0, 0, 4, 4, 4, 4, 4]
    assert tape.accepted.tolist() == [0, 0, 4, 3, 2, 1, 0]
    found = walk(tape, table([4], [7]), 4)
    assert (found.steps.tolist(), found.drafted_tokens) == ([2], 4)


def test_a_row_of_the_very_lengths_replays_that_request(write):
    model = write(CIRCLE + NOTHING + ROW.format([9] * 9, [9, 9, 9, 9, 9]))
    for seed in range(6):
        tape = model.tape(table([4, 3, 9], [7, 5, 5]), 2, Streams(seed))
        assert tape.accepted.tolist() == [0, 0, 2, 2, 2, 1, 0, *[0] * 5, 0, 2, 2, 1, 0]


def test_other_rows_get_similar_outputs_cut_or_gone_on_with(write):
    for seed in range(6):
        tape = write(CIRCLE).tape(table([50, 50], [4, 12]), 2, Streams(seed))
        assert tape.accepted.tolist() == [0, 0, 2, 2, 0, 0, 2, 2, 2, 1, 0, 0, 2, 2, 2, 1][: len(tape.accepted)]


def test_settings_and_k_act(write):
    assert write(CIRCLE).survival(4).tolist() == [0.5] * 4
    assert write(CIRCLE).survival(3) == pytest.approx([1 / 3] * 3)  # four tokens of six, then the last one alone
    assert write(CIRCLE, 7, 7).survival(3).tolist() == [0.0, 0.0, 0.0]


def test_long_and_short_recordings_can_be_left_out(write):
    model = write(CIRCLE + NOTHING + ROW.format([1], [2]))
    assert len(model.recording(3).accepted) == 2
    assert (
        len(model.model_copy(update={"max_output_tokens": 5}).drafted_by(NgramLookup(2, 3)).recording(3).accepted) == 1
    )
    with pytest.raises(ScenarioError, match="at most 1"):
        model.model_copy(update={"max_output_tokens": 1}).drafted_by(NgramLookup(2, 3)).recording(3)
    with pytest.raises(ScenarioError, match="2 or more output tokens"):
        write(ROW.format([1], [2])).recording(3)


def test_arms_bind_their_method_to_the_streams(write, tmp_path):
    write(CIRCLE)
    stream = StreamReplay(path="s.jsonl")
    short, long = (
        Arm(speculative_config=Ngram(num_speculative_tokens=3, prompt_lookup_min=n), acceptance=stream) for n in (2, 7)
    )
    assert short.located(tmp_path).acceptance.survival(4)[0] == 0.5
    assert long.located(tmp_path).acceptance.survival(4)[0] == 0.0
    by_class = Arm(
        speculative_config=Suffix(num_speculative_tokens=3), acceptance=Iid(rate=0.5), class_acceptance={"code": stream}
    ).located(tmp_path)
    assert by_class.class_acceptance["code"].survival(3)[0] > 0
    with pytest.raises(ScenarioError, match="draft from tokens"):
        Arm(speculative_config=Eagle(method="eagle3", num_speculative_tokens=3), acceptance=stream).located(tmp_path)


def test_pairing_is_that_of_recorded_sequences(write, tmp_path):
    """The n-gram arm and an EAGLE arm with a recording of the same requests meet the same request in a row."""
    model = write(CIRCLE + NOTHING)
    recording = model.recording(3)
    letters = ["".join(chr(97 + a) for a in row) for row in recording.accepted]
    lines = [f"ngram,{text},{'u' * len(text)}\n" for text in letters]
    (tmp_path / "a.csv").write_text("method,accepted,drafted\n" + "".join(lines))
    other = SequenceReplay(path="a.csv").located(tmp_path)
    requests = table([50] * 40, range(2, 42))
    ours = laid_out(recording, requests, 3, Streams(5)).accepted
    assert np.array_equal(other.tape(requests, 3, Streams(5)).accepted, ours)


# ---- measured data, not part of the project ----

MISMATCHES = {"gsm8k": (49_548, 0, 0), "sharegpt": (225_231, 1, 0)}


@pytest.fixture
def measured(shared_data):
    folder = shared_data / "acceptance"
    return lambda name, kind: folder / f"{name}_{kind}.csv.gz"


@pytest.mark.parametrize("name", MISMATCHES)
def test_recorded_ngram_runs_position_by_position(measured, name):
    """vLLM 0.10.1, matches of 3 to 7 tokens, the earliest of the longest, 20 drafts."""
    files = measured(name, "streams_relabelled"), measured(name, "accepted")
    assert replay_mismatches(*files, NgramLookup(3, 7)) == MISMATCHES[name]
    latest, shorter = (replay_mismatches(*files, rule) for rule in (NgramLookup(3, 7, "latest"), NgramLookup(3, 5)))
    assert min(latest.accepted, shorter.accepted) > 100  # other settings are told apart


def test_recordings_of_other_requests_are_refused(measured):
    with pytest.raises(ScenarioError, match="other requests"):
        replay_mismatches(measured("gsm8k", "streams_relabelled"), measured("sharegpt", "accepted"), NgramLookup(3, 7))


#: Tokens per step, drafted per step, accepted per drafted at K = 5, found by another implementation; requests in
#: repetition loops and below 8 tokens left out. "draft <= match" copies as many tokens as the suffix is long.
PROPOSERS = {
    "3-7 earliest": ((1.18, 0.73, 0.24), (1.33, 0.80, 0.41)),
    "2-4 earliest": ((1.30, 1.61, 0.19), (1.43, 1.42, 0.30)),
    "5 only": ((1.07, 0.23, 0.30), (1.21, 0.39, 0.54)),
    "1-3 latest": ((1.53, 3.33, 0.16), (1.58, 3.15, 0.18)),
    "any length, latest": ((1.53, 3.33, 0.16), (1.59, 3.14, 0.19)),
    "draft <= match": ((1.40, 1.19, 0.34), (1.49, 1.22, 0.40)),
}
RULES = {
    "3-7 earliest": (3, 7, "earliest"),
    "2-4 earliest": (2, 4, "earliest"),
    "5 only": (5, 5, "earliest"),
    "1-3 latest": (1, 3, "latest"),
    "any length, latest": (1, 64, "latest"),
    "draft <= match": (1, 64, "latest"),
}


def walked(streams, drafts, k):
    order = np.flatnonzero((streams.output_tokens < 8192) & (streams.output_tokens >= 8))
    found = recorded(streams, drafts, order)
    return walk(found.tape(k), found.table(), k)


@pytest.mark.parametrize("which", [0, 1], ids=["gsm8k", "sharegpt"])
def test_table_of_proposers(measured, which):
    streams = read_streams(measured(("gsm8k", "sharegpt")[which], "streams_relabelled"))
    for name, published in PROPOSERS.items():
        source, length = longest_matches(streams, *RULES[name])
        found = walked(streams, copied(streams, source, length if name == "draft <= match" else 5, 5), 5)
        accepted = found.accepted_counts @ np.arange(6)
        figures = (found.tokens_per_step, found.drafted_tokens / found.steps.sum(), accepted / found.drafted_tokens)
        assert figures == pytest.approx(published[which], abs=0.00501), name


@pytest.mark.parametrize(("name", "no_draft", "rejected"), [("gsm8k", 0.84, 0.077), ("sharegpt", 0.82, 0.068)])
def test_steps_without_a_draft_and_drafts_in_vain(measured, name, no_draft, rejected):
    """At K = 3: share of steps that draft nothing, and share of drafted steps among those that accept nothing."""
    streams = read_streams(measured(name, "streams_relabelled"))
    found = walked(streams, NgramLookup(3, 7).replay(streams, 3), 3)
    empty = found.steps.sum() - found.drafted_steps
    nothing = found.accepted_counts[0]
    assert empty / found.steps.sum() == pytest.approx(no_draft, abs=0.00501)
    assert (nothing - empty) / nothing == pytest.approx(rejected, abs=0.000501)
