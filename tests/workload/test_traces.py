"""Trace files: formats, windows, and everything that can be wrong with one."""

import gzip
import json
import random
import time
from pathlib import Path

import numpy as np
import pytest

from sim.csv_table import MAX_PROBLEMS
from sim.errors import ScenarioError
from sim.rng import Streams
from sim.workload.arrivals.closed import ClosedLoop
from sim.workload.arrivals.trace import TraceReplay
from sim.workload.traces import Trace, TraceSource, find_trace, load_file, shipped_traces
from sim.workload.workload import Workload

OWN = "arrival_s,input_tokens,output_tokens\n0.5,374,44\n1.25,396,109\n4.542,879,55\n"
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:16:50.9951690,879,55"
)
MOONCAKE = [
    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": list(range(46, 60))},
    {"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 47, *range(60, 71)]},
]


def load(tmp_path: Path, content: str | bytes, **options: object) -> Trace:
    path = tmp_path / "trace"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load_file(path, **options)  # type: ignore[arg-type]


def problems(tmp_path: Path, content: str | bytes, **options: object) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        load(tmp_path, content, **options)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in error.value.problems]


def columns(trace: Trace) -> list[list[int]]:
    return [trace.arrival_ns.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist()]


EXPECTED = [[500_000_000, 1_250_000_000, 4_542_000_000], [374, 396, 879], [44, 109, 55]]


@pytest.mark.parametrize(
    "content",
    [
        OWN,
        OWN.rstrip("\n"),
        OWN + "\n\n",
        OWN.replace("\n", "\r\n"),
        OWN.replace("\n", "\r"),
        "\ufeff" + OWN,
        OWN.replace(",", " , "),
        OWN.replace("374", '"374"'),
        OWN.replace("0.5,", "5e-1,"),
        OWN.upper(),
        "TIMESTAMP,ContextTokens,GeneratedTokens\n" + OWN.partition("\n")[2],
        "output_tokens,arrival_s,input_tokens\n44,0.5,374\n109,1.25,396\n55,4.542,879\n",
    ],
)
def test_csv_spellings(tmp_path: Path, content: str) -> None:
    assert columns(load(tmp_path, content)) == EXPECTED
    assert columns(load(tmp_path, gzip.compress(content.encode()))) == EXPECTED


def test_azure_time_stamps_count_from_the_first_row(tmp_path: Path) -> None:
    expected = [[0, 4_314_579_000, 64_314_579_000], [374, 396, 879], [44, 109, 55]]
    assert columns(load(tmp_path, AZURE)) == expected
    assert columns(load(tmp_path, AZURE.replace("900,", "90Z,").replace("690,", "69+00:00,"))) == expected


def test_mooncake_counts_milliseconds(tmp_path: Path) -> None:
    lines = "\n".join(map(json.dumps, MOONCAKE))
    assert columns(load(tmp_path, lines)) == [[27_482_000_000, 30_535_000_000], [6955, 6472], [52, 26]]


def test_mooncake_ticks_are_spread_in_order(tmp_path: Path) -> None:
    stamps = np.repeat(np.arange(400) * 3000, 10)
    rows = [{"timestamp": int(t), "input_length": i + 1, "output_length": 1} for i, t in enumerate(stamps)]
    trace = load(tmp_path, "\n".join(map(json.dumps, rows)))
    offsets = trace.arrival_ns / 1e9 - stamps / 1e3
    assert trace.input_tokens.tolist() == list(range(1, 4001))
    assert (np.diff(trace.arrival_ns) >= 0).all()
    assert offsets.min() >= 0
    assert offsets.max() < 3
    # uniform: mean 1.5 s, standard deviation 3 / sqrt(12) = 0.866 s, standard error of the mean 0.014 s
    assert offsets.mean() == pytest.approx(1.5, abs=4 * 0.014)
    assert offsets.std() == pytest.approx(0.866, rel=0.04)
    literal = load(tmp_path, "\n".join(map(json.dumps, rows)), tick_s=0.0)
    assert (literal.arrival_ns == stamps * 1_000_000).all()


def test_real_ticks_are_found_and_other_traces_left_alone(tmp_path: Path, shared_data: Path) -> None:
    own = load_file(shared_data / "traces/mooncake_conversation.csv")
    rows = zip((own.arrival_ns // 10**6).tolist(), own.input_tokens.tolist(), own.output_tokens.tolist(), strict=True)
    lines = (json.dumps({"timestamp": t, "input_length": i, "output_length": o}) for t, i, o in rows)
    gaps = np.diff(load(tmp_path, "\n".join(lines)).arrival_ns)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)
    assert len(np.unique(own.arrival_ns)) == 1180


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "trace: is empty"),
        ("\n \n", "trace: is empty"),
        ("arrival_s,input_tokens,output_tokens\n", "trace:1: has a header but no requests"),
        (
            OWN.replace("input_tokens", "inputs"),
            "trace:1: found the columns 'arrival_s,inputs,output_tokens'; expected",
        ),
        (OWN.replace(",", ";"), "separate fields by commas"),
        (
            "0.5,374,44\n",
            "trace:1: found the columns '0.5,374,44'; expected arrival_s,input_tokens,output_tokens (csv) or",
        ),
        (OWN.replace("396", "nan"), "trace:3: input_tokens: expected a whole number of tokens, found 'nan'"),
        (OWN.replace("396", "39.6"), "trace:3: input_tokens: expected a whole number of tokens, found '39.6'"),
        (OWN.replace("396", ""), "trace:3: input_tokens: expected a whole number of tokens, found nothing"),
        (OWN.replace("396", "3_96"), "trace:3: input_tokens: expected a whole number of tokens, found '3_96'"),
        (OWN.replace("396", "３９６"), "trace:3: input_tokens: expected a whole number of tokens, found '３９６'"),
        (OWN.replace("396", "0"), "trace:3: input_tokens: expected 1 to 10,000,000 tokens, found 0"),
        (OWN.replace("109", "-5"), "trace:3: output_tokens: expected 1 to 10,000,000 tokens, found -5"),
        (OWN.replace("109", "9" * 11), "trace:3: output_tokens: expected 1 to 10,000,000 tokens, found 99999999999"),
        (OWN.replace("109", "9" * 5000), "trace:3: output_tokens: expected a whole number of tokens, found '9999"),
        (OWN.replace("1.25", "nan"), "trace:3: arrival_s: expected a finite number of seconds, found 'nan'"),
        (OWN.replace("1.25", "-inf"), "trace:3: arrival_s: expected a finite number of seconds, found '-inf'"),
        (OWN.replace("1.25", "1e999"), "trace:3: arrival_s: expected a finite number of seconds, found '1e999'"),
        (
            OWN.replace("0.5,", "-0.5,"),
            "trace:2: arrival_s: expected 0 to 1e+08 s from the start of the trace, found -0.5",
        ),
        (OWN.replace("4.542", "1700000000"), "trace:4: arrival_s: expected 0 to 1e+08 s"),
        (
            OWN.replace("4.542", "1.2"),
            "trace:4: arrival_s: 1.2 s is before the row above (1.25 s); sort the file by time",
        ),
        (OWN.replace("1.25,", "1,25,"), "trace:3: expected 3 fields, found 4"),
        (OWN[:-4], "trace:4: expected 3 fields, found 2"),
        (OWN.replace("396", "3\x0096"), "trace:3: input_tokens: expected a whole number of tokens, found '3\\x0096'"),
        (OWN.replace("396", '"396'), "trace:4: not a CSV line"),
        (OWN.replace("396", "1" * 200_000), "trace:3: not a CSV line: field larger than field limit"),
        (OWN.encode("utf-16"), "trace: is UTF-16; save it as UTF-8"),
        (OWN.encode().replace(b"396", b"\xff96"), "trace:3: not UTF-8 text (byte 0xff)"),
        (gzip.compress(OWN.encode(), mtime=0)[:-9], "trace: damaged or cut gzip file"),
        (b"\x1f\x8bnot gzip at all", "trace: damaged or cut gzip file"),
        (gzip.compress(b"0" * 1_000_000, mtime=0), "trace: unpacks to more than 100 times its size"),
        (AZURE.replace("18:15:50", "18:75:50"), "trace:3: TIMESTAMP: expected a date of the calendar"),
        (
            AZURE.replace("2023-11-16 18:16", "2023-11-16 18:14"),
            "trace:4: TIMESTAMP: -55.685421 s is before the row above",
        ),
        (AZURE.replace("2023-11-16 18:15:46.6805900", "16.11.2023"), "trace:2: TIMESTAMP: expected a UTC time such as"),
        (AZURE.replace("46.6805900", "46.6805900+01:00"), "trace:2: TIMESTAMP: expected a UTC time such as"),
        ("{", "trace:1: not a JSON object"),
        ('{"timestamp": NaN}', "trace:1: not a JSON object: NaN is not a number"),
        ('{"a":' * 20_000, "trace:1: not a JSON object"),
        (json.dumps(MOONCAKE[0]) + "\n[1]", "trace:2: expected a JSON object, found '[1]'"),
        ('{"timestamp": 1, "input_length": 2}', "trace:1: output_length: missing"),
        (json.dumps({**MOONCAKE[0], "delay": 3}), "trace:1: delay: unknown key; allowed: timestamp, input_length"),
        (json.dumps({**MOONCAKE[0], "input_length": 2.5}), "trace:1: input_length: expected a whole number of tokens"),
        (json.dumps({**MOONCAKE[0], "input_length": True}), "trace:1: input_length: expected a number, found 'True'"),
        (json.dumps({**MOONCAKE[0], "output_length": 0}), "trace:1: output_length: expected 1 to 10,000,000 tokens"),
        (
            json.dumps({**MOONCAKE[0], "hash_ids": [1, 2]}),
            "trace:1: hash_ids: expected one hash per 512 tokens, found 2",
        ),
        (json.dumps({**MOONCAKE[0], "hash_ids": [1, "a"]}), "trace:1: hash_ids: expected a list of whole numbers"),
        (
            json.dumps(MOONCAKE[0]) + '\n{"timestamp": 1, "input_length": 5, "output_length": 5}',
            "trace:2: hash_ids: given in some lines and not in others",
        ),
        (json.dumps({**MOONCAKE[0], "output_length": 10**300}), "trace:1: output_length: too large"),
        ('{"timestamp": 1e999, "input_length": 2, "output_length": 2}', "trace:1: timestamp: too large"),
    ],
)
def test_everything_wrong_is_named_with_its_line(tmp_path: Path, content: str | bytes, expected: str) -> None:
    found = problems(tmp_path, content)
    assert any(expected in problem for problem in found), found
    assert all(len(problem) < 400 for problem in found)


def test_wanted_format_is_insisted_on(tmp_path: Path) -> None:
    assert "expected TIMESTAMP" in problems(tmp_path, OWN, trace_format="azure")[0]
    assert "holds no JSON" in problems(tmp_path, OWN, trace_format="mooncake")[0]
    assert "holds JSON lines" in problems(tmp_path, json.dumps(MOONCAKE[0]), trace_format="csv")[0]
    assert len(load(tmp_path, AZURE, trace_format="azure")) == 3


def test_all_problems_come_at_once_in_order_up_to_a_limit(tmp_path: Path) -> None:
    assert problems(tmp_path, OWN.replace("374", "x").replace("879", "-1").replace("0.5,", "?,")) == [
        "trace:2: arrival_s: expected a finite number of seconds, found '?'",
        "trace:2: input_tokens: expected a whole number of tokens, found 'x'",
        "trace:4: input_tokens: expected 1 to 10,000,000 tokens, found -1",
    ]
    many = problems(tmp_path, OWN + "5,0,1\n" * 100)
    assert len(many) == MAX_PROBLEMS + 1
    assert many[-1] == f"trace: and {100 - MAX_PROBLEMS} more problems"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no such file"):
        find_trace("missing.csv", tmp_path)
    with pytest.raises(ScenarioError, match="not a regular file"):
        find_trace(".", tmp_path)
    for name in ("a\0b", "x" * 5000):
        with pytest.raises(ScenarioError, match=r"no such file|not a usable file name"):
            find_trace(name, tmp_path)
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_file(tmp_path / "gone.csv")


def test_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.text_file.MAX_BYTES", 50)
    assert "larger than" in problems(tmp_path, OWN)[0]
    assert "unpacks to more" in problems(tmp_path, gzip.compress(b"0" * 60))[0]


def test_windows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(OWN)

    def window(**limits: object) -> list[list[int]]:
        return columns(TraceSource.model_validate({"path": "t.csv", **limits}).load(tmp_path))

    assert window() == EXPECTED
    assert window(max_requests=1) == [[500_000_000], [374], [44]]
    assert window(start_s=1)[0] == [250_000_000, 3_542_000_000]
    assert window(start_s="500 ms", duration_s=0.75)[0] == [0]
    assert window(start_s=0.5, duration_s=0.7500001)[1] == [374, 396]
    with pytest.raises(ScenarioError, match=r"no requests in the window; the trace spans 0.5 s to 4.542 s"):
        window(start_s=5)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    assert len(load(tmp_path, OWN)) == 3
    changed = load(tmp_path, OWN + "5,1,1\n")
    assert len(changed) == 4
    assert changed.sha256 != load(tmp_path, OWN).sha256
    with pytest.raises(ValueError, match="read-only"):
        changed.input_tokens[0] = 7


def test_shipped_excerpt() -> None:
    trace = load_file(find_trace("azure2023-conv", Path("nowhere")))
    assert len(trace) >= 2000
    assert trace.span_s == pytest.approx(900, abs=1)
    assert "CC-BY 4.0" in (shipped_traces()["azure2023-conv"].parent / "README.md").read_text()
    with pytest.raises(ScenarioError, match="did you mean azure2023-conv"):
        find_trace("azure2023_conf", Path())


def test_shipped_excerpt_is_a_window_of_the_original(shared_data: Path) -> None:
    excerpt = load_file(find_trace("azure2023-conv", Path()))
    source = TraceSource(path=str(shared_data / "traces/azure2023_conv.csv"), start_s=750, duration_s=900)
    assert columns(excerpt) == columns(source.load(Path()))


def test_twenty_thousand_rows_are_read_fast(tmp_path: Path) -> None:
    times = np.cumsum(np.full(20_000, 0.181))
    own = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{t:.3f},1024,256\n" for t in times.tolist())
    base = np.datetime64("2023-11-16T18:15:46", "ns")
    stamps = base + (times * 1e9).astype("timedelta64[ns]")
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{t},1024,256\n" for t in stamps)

    def cost(text: str, index: int) -> float:
        (path := tmp_path / f"{index}.csv").write_text(text)
        start = time.process_time()
        assert len(load_file(path)) == 20_000
        return time.process_time() - start

    assert min(cost(own, index) for index in range(3)) < 0.1
    assert min(cost(azure, index) for index in range(3, 6)) < 0.15


JUNK = [
    b"",
    b"\0",
    b",",
    b"\n",
    b'"',
    b"nan",
    b"-",
    b"1e400",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"9" * 400,
    b"{",
    b"\r",
    b";",
]


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_give_a_trace_or_named_problems(tmp_path: Path, seed: int) -> None:
    """F3 and X5: any damage is either harmless or one `ScenarioError` that names the file; never anything else."""
    rng = random.Random(seed)
    corpus = [OWN.encode(), AZURE.encode(), "\n".join(map(json.dumps, MOONCAKE)).encode()]
    corpus.append(gzip.compress(corpus[0]))
    refused: list[ScenarioError] = []
    for _ in range(250):
        content = bytearray(rng.choice(corpus))
        for _ in range(rng.randint(1, 4)):
            start = rng.randrange(len(content) + 1)
            end = min(len(content), start + rng.choice((0, 1, 1, 2, 30)))
            content[start:end] = rng.choice([*JUNK, bytes([rng.randrange(256)])])
        try:
            trace = load(tmp_path, bytes(content))
        except ScenarioError as error:
            refused.append(error)
        else:
            assert min(trace.input_tokens.min(), trace.output_tokens.min()) >= 1
            assert trace.arrival_ns[0] >= 0
            assert (np.diff(trace.arrival_ns) >= 0).all()
    assert len(refused) > 100
    assert all(problem.where.startswith(str(tmp_path)) for error in refused for problem in error.problems)


STREAMS = (
    '{"prompt_token_ids": [1, 2], "output_token_ids": [3]}\n{"prompt_token_ids": [4], "output_token_ids": [5, 6]}\n'
)


@pytest.mark.parametrize("trace_format", ["auto", "streams"])
def test_token_streams_give_lengths_but_no_times(tmp_path: Path, trace_format: str) -> None:
    trace = load(tmp_path, STREAMS, trace_format=trace_format)
    assert columns(trace) == [[0, 0], [2, 1], [1, 2]]
    assert not trace.timed
    assert len(trace.sha256) == 64


def test_windows_in_time_need_times(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(STREAMS)
    assert len(TraceSource(path="s.jsonl", max_requests=1).load(tmp_path)) == 1
    for option in ({"start_s": 1.0}, {"duration_s": 1.0}, {"tick_s": 0.0}):
        with pytest.raises(ScenarioError, match="use max_requests"):
            TraceSource(path="s.jsonl", **option).load(tmp_path)


def test_arrivals_cannot_come_from_token_streams(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(STREAMS)
    workload = Workload(trace=TraceSource(path="s.jsonl"), arrivals=TraceReplay())
    with pytest.raises(ScenarioError, match="no arrival times"):
        workload.requests(Streams(0), tmp_path)
    rows = Workload(trace=TraceSource(path="s.jsonl"), arrivals=ClosedLoop(max_concurrency=1), num_requests=2)
    found = rows.requests(Streams(0), tmp_path)
    assert sorted(zip(found.prompt_tokens.tolist(), found.output_tokens.tolist(), strict=True)) == [(1, 2), (2, 1)]
