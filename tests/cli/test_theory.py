"""`specsim theory`: numbers in both forms, all mistakes at once, and a quick start."""

import json
import subprocess
import sys

import pytest

from sim.cli import run_command
from sim.cli.numbers import parse_counts, parse_numbers

COMMANDS = (
    ["tokens"],
    ["speedup"],
    ["worksheet", "50", "20", "--k", "5"],
    ["tree"],
    ["guesses"],
    ["lossless"],
    ["errata"],
)


def document(capsys, *arguments):
    assert run_command(["theory", *arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_text_is_narrow_ascii_and_json_is_one_document(capsys, command):
    assert run_command(["theory", *command]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    assert text.isascii()
    assert document(capsys, *command)["schema_version"] == 1


def test_tokens_and_speedup_agree_with_the_library(capsys):
    (cell,) = document(capsys, "tokens", "--alpha", "0.8", "--k", "5")["tokens"]
    assert cell["tokens_per_step"] == pytest.approx(3.68928)
    (table,) = document(capsys, "speedup", "--alpha", "0.8", "--cost", "0.05")["speedup"]
    assert (table["best_k"], round(table["best_speedup"], 3)) == (8, 3.092)


def test_no_paying_k_means_off(capsys):
    assert run_command(["theory", "speedup", "--alpha", "0.2", "--cost", "0.4"]) == 0
    assert "Turn it off" in capsys.readouterr().out
    assert run_command(["theory", "tree", "--batch", "4096", "--nodes", "16"]) == 0
    assert "no tree pays: turn it off" in capsys.readouterr().out


def test_lossless_takes_a_pair_or_draws_one(capsys):
    stated = document(capsys, "lossless", "--p", "0.5,0.3,0.2", "--q", "0.2,0.6,0.2", "--samples", "1k")
    acceptance = {rule["rule"]: rule["acceptance"] for rule in stated["rules"]}
    assert acceptance["rejection_sampling"] == pytest.approx(0.7)
    drawn = document(capsys, "lossless", "--samples", "1k", "--seed", "3", "--vocabulary", "5")
    assert len(drawn["p"]) == 5
    assert drawn == document(capsys, "lossless", "--samples", "1k", "--seed", "3", "--vocabulary", "5")
    assert drawn["p"] != document(capsys, "lossless", "--samples", "1k", "--seed", "4", "--vocabulary", "5")["p"]


@pytest.mark.parametrize(
    ("command", "messages"),
    [
        ("tokens --alpha 2,x --k z", ["--alpha: '2': allowed: 0 to 1", "--k: 'z': expected a count"]),
        ("tokens --alpha nan", ["--alpha: 'nan': allowed: 0 to 1"]),
        ("speedup --cost -1 --k 3:1", ["--cost: '-1': allowed: 0", "--k: '3:1': allowed: 0 to 64, ranges ascending"]),
        ("worksheet 10 x --k 1,2", ["ACCEPTED: 'x'", "--k: 2 values; allowed: one"]),
        ("worksheet 10 20 --k 5", ["0 <= accepted <= drafted, found 10 and 20"]),
        ("worksheet 10 2", ["need the number of steps or K"]),
        ("tree --ranks 0.5,0.6 --nodes 0", ["--ranks: acceptances by rank must", "--nodes: '0': allowed: 1 to 1,024"]),
        ("tree --base-ms 0 --token-ms 0", ["--base-ms: a target pass takes time"]),
        ("guesses --alpha 1.5 --length 0", ["--alpha: '1.5'", "--length: '0'"]),
        ("lossless --p 0.5,0.3 --k 99", ["--k: '99': allowed: 1 to 12", "--q: missing; give both"]),
        ("lossless --p 0.5,0.3 --q 0.5,0.5", ["--p: no distribution: the sum is 0.8, not 1"]),
        ("lossless --p 0.5,0.5 --q 0.5,0.3,0.2", ["--q: 3 tokens, --p has 2"]),
        ("lossless --vocabulary 900 --k 3", ["more than 4,000,000 blocks"]),
    ],
)
def test_mistakes_are_reported_together(capsys, command, messages):
    assert run_command(["theory", *command.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(message in captured.err for message in messages), captured.err


def test_lists_and_ranges():
    assert parse_counts("8k, 1:3,2", 0, 10_000) == (1, 2, 3, 8000)
    assert parse_numbers("0.5, 1", 0, 1) == (0.5, 1.0)
    for parse, text in (
        (parse_counts, "1:100"),
        (parse_counts, ""),
        (parse_numbers, "0.5,"),
        (parse_numbers, ",".join("1" * 65)),
    ):
        with pytest.raises(ValueError):
            parse(text, 0, 1000)


def test_starts_without_tables_and_plots():
    code = (
        "import sys; from sim.cli import run_command; run_command(['theory', 'lossless', '--samples', '100']); "
        "print([name for name in ('pandas', 'plotly', 'pyarrow', 'simpy', 'rich') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
