"""Server reports: vLLM's per-request stats, `vllm bench serve`, logs; what is made of them, and every refusal."""

import json

import numpy as np
import pytest

from sim.acceptance.measured import Measured, between_requests
from sim.acceptance.per_depth import PerDepth
from sim.acceptance.server_reports import read_server_report
from sim.acceptance.spread import LogitNormalSpread
from sim.acceptance.walk import walk
from sim.errors import ScenarioError
from sim.rng import Streams
from sim.workload.requests import RequestTable

LOG = (
    "(APIServer pid=1) INFO 08-04 20:51:08 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: {mean}, "
    "Accepted throughput: 0.12 tokens/s, Drafted throughput: 0.34 tokens/s, Accepted: {a} tokens, Drafted: {d} tokens, "
    "Per-position acceptance rate: {rates}, Avg Draft acceptance rate: {avg}%\n"
)


def table(requests, tokens):
    zeros = np.zeros(requests, dtype=np.int64)
    return RequestTable(zeros, zeros + 5, zeros + tokens, zeros, np.ones(requests, dtype=bool))


def stats(counts, k, **more):
    accepted, steps = sum(j * c for j, c in enumerate(counts)), sum(counts)
    return {
        "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
        "draft_acceptance_rate": accepted / (k * steps) if steps else 0.0,
        "acceptance_histogram": {str(j): c for j, c in enumerate(counts) if c},
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": k * steps,
        "num_spec_tokens": k,
        **more,
    }


def write(path, text):
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return Measured(path=str(path))


def responses(found):
    return [{"choices": [{"index": 0, "speculative_decoding_stats": one}]} for one in found]


def test_per_request_histograms_dense_or_sparse_in_whole_responses(tmp_path):
    sparse = write(tmp_path / "a.json", responses([stats([39, 1, 0, 3], 3), stats([10, 10, 5, 5], 3)]))
    dense = [stats([39, 1, 0, 3], 3, acceptance_histogram=[39, 1, 0, 3]), stats([10, 10, 5, 5], 3)]
    lines = write(tmp_path / "b.jsonl", "\n".join(json.dumps(one) for one in dense))
    for model in (sparse, lines):
        assert model.report().form == "per-request histograms"
        assert model.max_supported_draft_tokens() == 3
        assert model.survival(3) == pytest.approx(np.array([24, 13, 8]) / 73)
        assert model.survival(2) == pytest.approx(np.array([24, 13]) / 73)


def test_traces_say_what_was_drafted(tmp_path):
    """Depth 2 was drafted in two of the steps that reached it, and accepted in one."""
    trace = {"per_step_accepted": [1, 2, 1, 0, 0], "per_step_drafted": [1, 2, 2, 2, 0]}
    model = write(tmp_path / "a.json", stats([1, 2, 1], 2, num_draft_tokens=7, **trace))
    assert model.report().form == "per-step traces"
    assert model.report().conditional == pytest.approx([3 / 4, 1 / 2])


def test_spread_between_requests_is_recovered(tmp_path):
    """A server of known rates and spread: pooled rates within 4 standard errors, its spread within 15 %."""
    truth = PerDepth(rates=(0.7, 0.6, 0.5), request_spread=LogitNormalSpread(sd=0.8))
    requests = table(600, 300)
    tape, found = truth.tape(requests, 3, Streams(1)), []
    for row in range(600):
        one = tape.accepted[300 * row : 300 * (row + 1)]
        position, counts = 1, [0, 0, 0, 0]
        while position < 300:
            counts[one[position]] += 1
            position += int(one[position]) + 1
        found.append(stats(counts, 3))
    model = write(tmp_path / "a.json", responses(found))
    measured = walk(tape, requests, 3)
    assert model.survival(3) == pytest.approx(measured.survival, abs=1e-6)
    assert "request spread" in model.origin()
    again = walk(model.tape(table(600, 300), 3, Streams(2)), requests, 3)
    assert again.request_sd == pytest.approx(measured.request_sd, rel=0.15)
    assert again.tokens_per_step == pytest.approx(
        measured.tokens_per_step, abs=4 * measured.tokens_per_step_error * 1.5
    )


def test_few_requests_or_none_that_differ_have_no_spread():
    same = np.full(50, 1.5), np.full(50, 1.0), np.full(50, 100.0)
    assert between_requests(*same) == 0.0
    assert between_requests(*(values[:19] for values in (np.linspace(0, 3, 50), *same[1:]))) == 0.0


def test_bench_serve(tmp_path):
    bench = {
        "spec_decode_acceptance_rate": 53.5,
        "spec_decode_acceptance_length": 2.606,
        "spec_decode_num_drafts": 1000,
        "spec_decode_draft_tokens": 3000,
        "spec_decode_accepted_tokens": 1606,
        "spec_decode_per_position_acceptance_rates": [0.730, 0.521, 0.355],
        "mean_ttft_ms": 12.0,
    }
    model = write(tmp_path / "bench.json", bench)
    assert model.survival(3) == pytest.approx([0.730, 0.521, 0.355])
    assert model.origin() == "per-position rates, K=3"
    del bench["spec_decode_per_position_acceptance_rates"]
    model = write(tmp_path / "length.json", bench)
    assert model.origin() == "mean length, K=3"
    assert 1 + model.survival(3).sum() == pytest.approx(2.606)


def test_log_lines_are_weighted_by_their_drafts(tmp_path):
    text = "starting\n" + LOG.format(mean="2.00", a=100, d=200, rates="0.600, 0.400", avg="50.0")
    text += LOG.format(mean="2.50", a=450, d=600, rates="0.900, 0.600", avg="75.0")
    model = write(tmp_path / "server.log", text)
    assert model.survival(2) == pytest.approx([(0.6 + 3 * 0.9) / 4, (0.4 + 3 * 0.6) / 4])
    assert model.report().steps == 400


BENCH = {
    "spec_decode_acceptance_length": 2.6,
    "spec_decode_num_drafts": 1000,
    "spec_decode_draft_tokens": 3000,
    "spec_decode_accepted_tokens": 1600,
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "no acceptance_histogram"),
        ("hello", "no acceptance_histogram"),
        ("{ broken", "neither JSON nor JSON lines"),
        (json.dumps(stats([1, 2, 3], 2, num_draft_tokens=9)), "K varied"),
        (json.dumps(stats([1, 2], 1, acceptance_histogram={"5": 1})), "no count of steps"),
        (json.dumps(stats([1, 2], 1, num_spec_tokens=None)), "num_spec_tokens"),
        (json.dumps(stats([], 2)), "no request has a step"),
        (json.dumps(stats([1, 1], 1, per_step_accepted=[2], per_step_drafted=[1])), "0 <= accepted <= drafted"),
        (json.dumps({**BENCH, "spec_decode_draft_tokens": 3500}), "no whole K"),
        (json.dumps({**BENCH, "spec_decode_num_drafts": "many"}), "no count"),
        (json.dumps({**BENCH, "spec_decode_per_position_acceptance_rates": [0.5, 0.6]}), "increase"),
        (json.dumps({**BENCH, "spec_decode_per_position_acceptance_rates": [0.5, 0.4]}), "not 1 [+] the sum"),
        (json.dumps([BENCH, BENCH]), "2 benchmark results"),
        ("SpecDecoding metrics: Mean acceptance length: 2.0", "without mean length"),
        (
            LOG.format(mean="2.00", a=100, d=200, rates="0.600, 0.400", avg="50")
            + LOG.format(mean="1.60", a=60, d=100, rates="0.600", avg="60"),
            "several K",
        ),
    ],
)
def test_refusals(tmp_path, text, message):
    with pytest.raises(ScenarioError, match=message):
        write(tmp_path / "file", text).report()


def test_all_faults_at_once(tmp_path):
    lines = [stats([1, 2, 3], 2, num_draft_tokens=9), stats([4, 1], 2), stats([1], 2, acceptance_histogram={"7": 1})]
    with pytest.raises(ScenarioError) as caught:
        write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines))).report()
    assert [problem.where.rsplit(":", 1)[1] for problem in caught.value.problems] == ["1", "3"]


def test_larger_k_is_refused(tmp_path):
    model = write(tmp_path / "a.json", stats([1, 2, 3], 2))
    with pytest.raises(ScenarioError, match="covers 2 draft tokens"):
        model.survival(3)


def test_missing_file(tmp_path):
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_server_report(tmp_path / "nothing.json")
