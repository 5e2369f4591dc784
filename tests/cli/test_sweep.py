"""`specsim sweep` as a user meets it: what is counted, what is refused, what lies in the folder."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.cli import run_command
from sim.experiment.results import load
from sim.experiment.store import RunFolder, while_unfinished

LOADS, SEQS = "workload.arrivals.max_concurrency", "engine.max_num_seqs"


@pytest.fixture
def scenario(small_file: Callable[..., str]) -> str:
    return small_file(arms={"plain": {}}, sweep={"replicates": 1})


def dry(scenario: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    assert run_command(["sweep", scenario, "--dry-run", "--json", *options]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("1,2,4", [1, 2, 4]),
        ("1:20:log2", [1, 2, 4, 8, 16, 20]),
        ("2:5", [2, 3, 4, 5]),
        ("1:100:log:3", [1, 10, 100]),
        ("{min: 10, max: 30, num: 3}", [10, 20, 30]),
    ],
)
def test_values_are_spelt_short(
    scenario: str, capsys: pytest.CaptureFixture[str], values: str, expected: list[int]
) -> None:
    facts = dry(scenario, capsys, "--vary", f"{LOADS}={values}")
    assert facts["vary"] == {LOADS: expected}
    assert facts["cells"] == len(expected)


def test_random_values_are_the_same_every_time_and_differ_by_key(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = "{min: 10, max: 9000, scale: log, num: 8, random: true}"
    options = ("--vary", f"{LOADS}={drawn}", "--vary", f"{SEQS}={drawn}", "--combine", "zip")
    first, again = dry(scenario, capsys, *options), dry(scenario, capsys, *options)
    assert first == again
    vary = first["vary"]
    assert isinstance(vary, dict)
    assert first["cells"] == 8
    assert vary[LOADS] != vary[SEQS]
    assert all(10 <= value <= 9000 for value in vary[LOADS])


def test_a_grid_and_lists_in_step_make_different_sweeps(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--vary", f"{LOADS}=1,2,4", "--vary", f"{SEQS}=8,16,32")
    assert dry(scenario, capsys, *options)["cells"] == 9
    assert dry(scenario, capsys, *options, "--combine", "zip")["cells"] == 3
    assert dry(scenario, capsys, *options, "--shard", "2/4")["cells"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vary", f"{LOADS}"], "expected KEY=VALUES"),
        (["--vary", f"{LOADS}=8:2"], "max 2 lies below min 8"),
        (["--vary", f"{LOADS}=0:8:log:3"], "needs min above 0"),
        (["--vary", "workload.arrivals.max_concurency=1,2"], "did you mean max_concurrency?"),
        (["--vary", f"{LOADS}=1,2", "--vary", f"{SEQS}=1,2,3", "--combine", "zip"], "equally many values"),
        (["--vary", f"{LOADS}=1,2,2"], "stands here twice: 2"),
        (["--vary", f"{SEQS}=8000,8k"], "stands here twice: 8000"),
        (["--vary", f"{LOADS}=1,2,1", "--vary", f"{SEQS}=8,9,8", "--combine", "zip"], "makes this point twice"),
        (["--shard", "5/4"], "I from 1 to N"),
        (["--vary", f"{LOADS}=1:30", "--max-runs", "10"], "30 runs; allowed: at most --max-runs 10"),
        (["--scheduler", "tcp://127.0.0.1:1"], "needs --executor dask"),
        (["--executor", "dask"], "needs --scheduler"),
    ],
)
def test_wrong_sweeps_are_refused_before_anything_is_written(
    scenario: str, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run_command(["sweep", scenario, "-o", "out", *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(Path("out").rglob("*"))


def test_values_in_step_may_stand_twice(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--vary", f"{LOADS}=1,1,2", "--vary", f"{SEQS}=8,16,16", "--combine", "zip")
    assert dry(scenario, capsys, *options)["cells"] == 3


def test_a_dry_run_says_what_max_runs_would_refuse(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = dry(scenario, capsys, "--vary", f"{LOADS}=1:30", "--max-runs", "10")
    assert (facts["max_runs"], facts["refused"]) == (10, True)
    assert not dry(scenario, capsys, "--vary", f"{LOADS}=1:30")["refused"]
    assert run_command(["sweep", scenario, "--dry-run", "--vary", f"{LOADS}=1:30", "--max-runs", "10"]) == 0
    assert "would be refused: 30 runs; allowed: at most --max-runs 10" in capsys.readouterr().out


def test_a_dry_run_says_at_which_load_other_fields_are_varied(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dry(scenario, capsys, "--vary", f"{SEQS}=1,2")["load"] == {LOADS: 2}
    assert dry(scenario, capsys, "--vary", f"{LOADS}=1,2")["load"] == {}
    assert run_command(["sweep", scenario, "--dry-run", "--vary", f"{SEQS}=1,2"]) == 0
    assert f"everywhere {LOADS}: 2\n" in capsys.readouterr().out


def test_a_sweep_leaves_an_ordinary_results_folder(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sweep", scenario, "-o", "out", "--vary", f"{LOADS}=1,2", "--jobs", "1", "-q"]) == 0
    (run_dir,) = Path("out/mine").iterdir()
    assert load(run_dir).manifest["status"] == "done"
    assert capsys.readouterr().out.splitlines()[0] == f"Wrote {run_dir}"
    assert run_command(["clean", "out"]) == 0
    assert run_dir.is_dir()


def test_a_field_varied_twice_is_refused(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sweep", scenario, "--dry-run", "--vary", f"{LOADS}=1", "--vary", f"{LOADS}=4"]) == 2
    assert f"given twice: {LOADS}" in capsys.readouterr().err


def test_a_hidden_folder_is_found_by_the_name_it_will_have(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sweep", scenario, "--jobs", "1", "-q"]) == 0
    shown = Path(capsys.readouterr().out.splitlines()[0].removeprefix("Wrote "))
    before = (shown / "summary.csv").read_bytes()
    shown.rename(while_unfinished(shown))  # as a killed process leaves it
    assert run_command(["sweep", str(shown), "--resume", "--jobs", "1", "-q"]) == 0
    assert (shown / "summary.csv").read_bytes() == before
    other = RunFolder.reopen(shown)
    assert run_command(["sweep", str(shown), "--resume", "--jobs", "1", "-q"]) == 2
    assert "another process works on it (pid" in capsys.readouterr().err
    other.publish()


def test_merging_what_is_not_there_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["merge", "nowhere"]) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err
