"""Every registered acceptance kind, present and future, by the examples in its schema."""

import csv
import json
from typing import Annotated

import numpy as np
import pytest
from pydantic import TypeAdapter

from sim.acceptance.base import ACCEPTANCE, AcceptanceModel
from sim.acceptance.walk import walk
from sim.errors import ScenarioError
from sim.proposers.ngram import NgramLookup
from sim.rng import Streams
from sim.theory.draft_trees import FixedShape, tree_of_widths
from sim.workload.requests import RequestTable

ADAPTER = TypeAdapter(Annotated[AcceptanceModel, ACCEPTANCE])
EXAMPLES = [
    pytest.param(example, id=f"{kind}-{index}")
    for kind, cls in ACCEPTANCE.members().items()
    for index, example in enumerate(cls.model_config.get("json_schema_extra", {}).get("examples", [None]))
]


def table(lengths):
    lengths = np.asarray(lengths, dtype=np.int64)
    zeros = np.zeros(len(lengths), dtype=np.int64)
    return RequestTable(zeros, zeros + 10, lengths, zeros, np.ones(len(lengths), dtype=bool))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with a made-up recording, for kinds that read one (`accepted.csv.gz` is their example's name)."""
    import gzip

    folder = tmp_path_factory.mktemp("recording")
    draws = np.random.Generator(np.random.Philox(5)).geometric(0.4, 40_000) - 1
    letters = "".join(chr(97 + min(int(draw), 20)) for draw in draws)
    with gzip.open(folder / "accepted.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["request", "method", "degenerate", "accepted", "drafted"])
        for request in range(100):
            writer.writerow([request, "eagle", 0, letters[400 * request : 400 * request + 300 + request], ""])
    (folder / "text.txt").write_text(made_up_text())
    ids = np.random.Generator(np.random.Philox(6)).integers(0, 6, 60_000).tolist()
    parts = [(ids[start : start + 20], ids[start + 20 : start + 330 + start // 400]) for start in range(0, 40_000, 400)]
    lines = [{"prompt_token_ids": prompt, "output_token_ids": output} for prompt, output in parts]
    (folder / "streams.jsonl").write_text("\n".join(map(json.dumps, lines)))
    stats = {"acceptance_histogram": {"0": 40, "1": 25, "3": 30}, "num_draft_tokens": 285, "num_spec_tokens": 3}
    (folder / "acceptance.jsonl").write_text(json.dumps(stats))
    return folder


def made_up_text():
    """2,000 words of a few syllables, frequent ones far more often: enough to count n-grams from."""
    generator = np.random.Generator(np.random.Philox(6))
    syllables = np.array(["to", "ken", "draft", "ser", "ver", "a", "the", "ing"])
    words = ["".join(generator.choice(syllables, size=generator.integers(1, 4))) for _ in range(60)]
    return " ".join(words[int(rank)] for rank in np.minimum(generator.pareto(0.9, 2000), 59))


@pytest.fixture
def model(request, recorded):
    """As an arm that drafts by prompt lookup binds it."""
    assert request.param is not None, "every kind declares examples in model_config['json_schema_extra']"
    return ADAPTER.validate_python(request.param).located(recorded).drafted_by(NgramLookup(1, 3))


@pytest.fixture
def k(model):
    largest = model.max_supported_draft_tokens() or 5
    known = [k for k in range(1, largest + 1) if not model.missing_draft_tokens([k])]
    return max((k for k in known if k <= 5), default=known[0])


every_kind = pytest.mark.parametrize("model", EXAMPLES, indirect=True)


@every_kind
def test_reads_back_from_its_own_dump(model):
    again = ADAPTER.validate_python(model.model_dump(mode="json")).drafted_by(NgramLookup(1, 3))
    assert again == model
    assert hash(again) == hash(model)


@every_kind
def test_has_a_description_for_every_field_and_says_whether_the_bonus_counts(model):
    fields = {name: field for name, field in type(model).model_fields.items() if name != "kind"}
    assert all(field.description or field.default is not None for field in fields.values())
    words = (type(model).__doc__ or "") + "".join(field.description or "" for field in fields.values())
    assert "bonus" in words or "emitted j + 1" in words


@every_kind
def test_tape_has_the_shape_and_range_of_the_contract(model, k):
    requests = table([1, 2, 3, 50, 7])
    tape = model.tape(requests, k, Streams(3))
    assert tape.accepted.shape == (requests.num_positions,)
    assert tape.accepted.dtype == np.uint8
    assert tape.accepted.max() <= k
    if tape.proposed is not None:
        assert tape.proposed.shape == tape.accepted.shape
        assert tape.proposed.max() <= k
    tape.check()


@every_kind
def test_same_seed_same_bytes_and_another_seed_or_replicate_differs(model, k):
    requests = table([64] * 200)
    first, again, seed, replicate = (
        model.tape(requests, k, streams) for streams in (Streams(1), Streams(1), Streams(2), Streams(1, 1))
    )
    assert first.accepted.tobytes() == again.accepted.tobytes()
    assert first.accepted.tobytes() != seed.accepted.tobytes()
    assert first.accepted.tobytes() != replicate.accepted.tobytes()


@every_kind
def test_more_rows_change_nothing_and_rows_do_not_see_one_another(model, k):
    few, many, other = table([40, 9, 77]), table([40, 9, 77, 30, 200]), table([40, 300, 77])
    tapes = {name: model.tape(rows, k, Streams(8)) for name, rows in (("few", few), ("many", many), ("other", other))}
    assert np.array_equal(tapes["few"].accepted, tapes["many"].accepted[: few.num_positions])
    for row in (0, 2):
        start, there = few.output_offset[row], other.output_offset[row]
        length = few.output_tokens[row]
        mine, theirs = tapes["few"].accepted[start : start + length], tapes["other"].accepted[there : there + length]
        assert np.array_equal(mine, theirs)


@every_kind
def test_longer_outputs_do_not_change_existing_positions(model, k):
    if model.kind in ("sequence_replay", "stream_replay"):
        pytest.skip("rows are paired with recordings by output length")
    short, long = table([40, 9]), table([90, 60])
    mine, theirs = model.tape(short, k, Streams(8)), model.tape(long, k, Streams(8))
    for row in (0, 1):
        a, b, n = short.output_offset[row], long.output_offset[row], short.output_tokens[row]
        assert np.array_equal(mine.accepted[a : a + n], theirs.accepted[b : b + n])


@every_kind
def test_smaller_k_is_the_same_tape_cut(model, k):
    if model.missing_draft_tokens(range(1, k)):
        pytest.skip("its first drafts depend on K, see tests/acceptance/test_table_by_k.py")
    requests = table([40, 9, 130])
    for fewer in range(1, k):
        cut = model.tape(requests, fewer, Streams(4)).accepted
        assert np.array_equal(cut, np.minimum(model.tape(requests, k, Streams(4)).accepted, fewer))


@every_kind
def test_survival_is_what_a_walk_finds(model, k):
    """Within 4 standard errors over requests, each K; 1,500 requests of 1,200 tokens."""
    if model.kind in ("sequence_replay", "stream_replay"):
        pytest.skip("exact for the recorded requests, see tests/acceptance/test_sequence_replay.py")
    requests = table(np.full(1500, 1200))
    tape = model.tape(requests, k, Streams(11))
    for drafts in {1, k} - {*model.missing_draft_tokens([1])}:
        found, survival = walk(tape, requests, drafts), model.survival(drafts)
        assert survival.shape == (drafts,)
        assert np.all(np.diff(survival) <= 1e-12)
        emitted = 1 + found.survival.sum()
        assert emitted == pytest.approx(1 + survival.sum(), abs=4 * found.tokens_per_step_error + 1e-3)
        assert found.survival == pytest.approx(survival, abs=0.012)


@every_kind
def test_describes_token_trees_or_says_what_does(model, k):
    """Kinds that state counts hold for a whole tree of their depth; whether by rank or by count, the tape adds up."""
    depth = getattr(model, "num_speculative_tokens", k)
    shape, requests = FixedShape(tree_of_widths((2,) + (1,) * (depth - 1))), table([40, 9, 130])
    if not (model.counts_accepted or model.kind == "per_rank"):
        with pytest.raises(ScenarioError, match="describes a chain"):
            model.tree_tape(requests, shape, Streams(4))
        with pytest.raises(ScenarioError, match="describes a chain"):
            model.tree_survival(shape, shape.num_nodes)
        return
    tape = model.tree_tape(requests, shape, Streams(4))
    tape.check()
    assert tape.reach.shape == (requests.num_positions, depth)
    assert np.array_equal(tape.at(shape.num_nodes), tape.accepted)
    survival = model.tree_survival(shape, shape.num_nodes)
    assert survival.shape == (depth,)
    assert np.all(np.diff(survival) <= 1e-12)


@every_kind
def test_refuses_more_drafts_than_it_covers(model):
    limit = model.max_supported_draft_tokens()
    if limit is None:
        assert len(model.survival(30)) == 30
        return
    for call in (lambda: model.survival(limit + 1), lambda: model.tape(table([5]), limit + 1, Streams(0))):
        with pytest.raises(ScenarioError, match=f"covers {limit} draft tokens"):
            call()
