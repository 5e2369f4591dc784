"""Whole experiments through the real server: what is written, that it is the same every time, and what goes wrong."""

import csv
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.errors import CapacityError, InvariantError, ResultsError, ScenarioError, SimError
from sim.experiment import executor
from sim.experiment.executor import Serial
from sim.experiment.results import load
from sim.experiment.rounds import HowToRun
from sim.experiment.run import Interrupted, begun, find_unfinished, run
from sim.experiment.store import clear_litter
from sim.experiment.task import Outcome, Task
from sim.scenario.cells import cell_scenarios
from sim.scenario.dump import plain_data
from sim.scenario.load import LoadedScenario, load_mapping, load_scenario

Load = Callable[..., LoadedScenario]
AXIS = "workload.arrivals.max_concurrency"


def digests(run_dir: Path, leave_out: tuple[str, ...] = ("timing.json",)) -> dict[str, str]:
    files = [path for path in run_dir.rglob("*") if path.is_file() and path.name not in leave_out]
    return {str(path.relative_to(run_dir)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def rows(run_dir: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((run_dir / name).read_text().splitlines()))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run of the small scenario, shared by tests that only read it."""
    arm = {
        "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
        "acceptance": {"kind": "iid", "rate": 0.7},
    }
    scenario = {
        "name": "small",
        "hardware": "h100-sxm",
        "model": "llama-3.1-8b",
        "cost_model": {"kind": "constant", "target_ms": 10, "draft_ms": 1},
        "arms": {"plain": {}, "k3": arm},
        "workload": {
            "arrivals": {"kind": "closed", "max_concurrency": 2},
            "prompt_tokens": {"kind": "fixed", "value": 60},
            "output_tokens": {"kind": "fixed", "value": 200},
            "num_requests": 40,
        },
        "sweep": {"replicates": 3, "vary": {AXIS: [1, 4]}},
    }
    return run(load_mapping(scenario), tmp_path_factory.mktemp("results"), jobs=1)


def test_the_folder_holds_what_was_promised(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    tables = {"summary.csv", "summary.parquet", "summary.json", "compare.csv", "breakeven.json"}
    documents = {"manifest.json", "timing.json", "scenario.yaml", "scenario.resolved.yaml", "journal.jsonl"}
    assert names == tables | documents | {"cells"}
    manifest = load(finished).manifest
    assert manifest["status"] == "done"
    assert [cell["vary"] for cell in manifest["cells"]] == [{AXIS: 1}, {AXIS: 4}]
    summary = rows(finished, "summary.csv")
    assert len(summary) == 2 * 2 * 3
    for row in summary:
        folder = finished / "cells" / row["cell_id"] / row["arm"] / f"r{row['replicate']}"
        assert {path.name for path in folder.iterdir()} == {"requests.parquet", "timeline.parquet", "result.json"}


def test_no_file_names_this_machine(finished: Path) -> None:
    for path in finished.rglob("*"):
        if path.is_file() and path.name != "timing.json":
            content = path.read_bytes()
            assert str(finished.parent.parent).encode() not in content, path
            assert os.uname().nodename.encode() not in content or len(os.uname().nodename) < 6, path


def test_the_known_answer_of_constant_step_times(finished: Path) -> None:
    """Plain: one token per 10 ms. k3: 13 ms per step (10 + 3 x 1) and (1 - .7^4) / .3 = 2.533 tokens: 1.949 x."""
    expected = (1 - 0.7**4) / 0.3 * 10 / 13
    found = [row for row in rows(finished, "compare.csv") if row["metric"] == "mean_tpot_ms"]
    for row in found:
        assert float(row["baseline_value"]) == pytest.approx(10.0, rel=1e-9)
        low, high, speedup = (float(row[key]) for key in ("ci_low", "ci_high", "speedup"))
        assert speedup == pytest.approx(expected, rel=0.03)  # 40 x 200 tokens, 3 replicates, ends of outputs
        assert low - 0.03 <= expected <= high + 0.03
        assert row["verdict"] == "better"
    answer = load(finished).breakeven()
    for objective in ("output_throughput", "mean_tpot_ms"):
        assert answer["arms"]["k3"][objective]["status"] == "always"
        assert answer["arms"]["k3"][objective]["range_tested"] == [1.0, 4.0]
    analytic = answer["analytic"]["k3"]
    assert analytic["status"] == "always"
    assert analytic["speedup"] == pytest.approx([expected] * len(analytic["batch"]), rel=1e-9)


def test_tables_for_pandas_users(finished: Path) -> None:
    experiment = load(finished)
    summary = experiment.summary
    assert len(summary) == 12
    cell = str(summary["cell_id"].iloc[0])
    requests = experiment.requests(cell, "k3", 1)
    assert len(requests) == 40
    assert (requests["status"] == "finished").all()
    assert requests["tpot_ms"].notna().all()
    measured = requests[requests["is_measured"]]
    row = summary[(summary.cell_id == cell) & (summary.arm == "k3") & (summary.replicate == 1)].iloc[0]
    assert measured["tpot_ms"].mean() == pytest.approx(row["mean_tpot_ms"])
    assert set(experiment.compare()["verdict"]) <= {"better", "worse", "not resolved"}
    assert experiment.timeline(cell, "plain")["running"].max() <= 4
    assert experiment.result(cell, "plain")["memory"]["num_kv_blocks"] > 0
    with pytest.raises(ResultsError, match="no finished run"):
        experiment.requests(cell, "nothing")
    assert json.dumps(experiment.document(), allow_nan=False)


def test_same_bytes_again_and_with_workers(small: Load, tmp_path: Path) -> None:
    first, second = (run(small(), tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert digests(first) == digests(second)


def test_same_bytes_whatever_the_hash_seed(small: Load, tmp_path: Path) -> None:
    resolved = run(small(), tmp_path / "a", jobs=1)
    script = (
        "import sys; from pathlib import Path; from sim.experiment.run import run; "
        "from sim.scenario.load import load_scenario; print(run(load_scenario(sys.argv[1]), Path(sys.argv[2]), jobs=1))"
    )
    arguments = [sys.executable, "-c", script, str(resolved / "scenario.resolved.yaml"), str(tmp_path / "b")]
    environment = os.environ | {"PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert digests(Path(done.stdout.strip())) == digests(resolved)


def test_input_files_travel_with_the_results(small: Load, tmp_path: Path) -> None:
    trace = tmp_path / "mine.csv"
    trace.write_text(
        "arrival_s,input_tokens,output_tokens\n" + "".join(f"{i * 0.1},{20 + i},{5 + i % 7}\n" for i in range(30))
    )
    workload = {
        "trace": {"path": "mine.csv"},
        "arrivals": {"kind": "closed", "max_concurrency": 2},
        "prompt_tokens": {"kind": "trace"},
        "output_tokens": {"kind": "trace"},
        "num_requests": 20,
    }
    first = run(small(tmp_path, workload=workload), tmp_path / "a", jobs=1)
    trace.unlink()
    copies = list((first / "inputs").iterdir())
    assert [copy.name[8:] for copy in copies] == ["-mine.csv"]
    again = run(load_scenario(str(first / "scenario.resolved.yaml")), tmp_path / "b", jobs=2)
    assert digests(again) == digests(first)


def test_token_streams_and_datastores_travel_too(small: Load, tmp_path: Path) -> None:
    """A run from the results folder alone finds the same drafts."""
    ids = [[7, *range(10, 30)], [*range(10, 30), 8]]
    lines = [json.dumps({"prompt_token_ids": ids[0], "output_token_ids": ids[1][: 18 + i]}) + "\n" for i in range(4)]
    for name in ("mine.jsonl", "store.jsonl"):
        (tmp_path / name).write_text("".join(lines if name == "mine.jsonl" else lines[3:]))
    rest = {"method": "rest", "num_speculative_tokens": 4, "datastore": "store.jsonl"}
    arms = {
        "plain": {},
        "rest": {"speculative_config": rest, "acceptance": {"kind": "stream_replay", "path": "mine.jsonl"}},
    }
    workload = {"trace": "mine.jsonl", "arrivals": {"kind": "closed", "max_concurrency": 2}, "num_requests": 20}
    sweep = {"replicates": 1}
    first = run(small(tmp_path, arms=arms, workload=workload, sweep=sweep), tmp_path / "a", jobs=1)
    for name in ("mine.jsonl", "store.jsonl"):
        (tmp_path / name).unlink()
    again = run(load_scenario(str(first / "scenario.resolved.yaml")), tmp_path / "b", jobs=1)
    assert digests(again) == digests(first)
    (accepted,) = {row["spec_decode_acceptance_length"] for row in rows(again, "summary.csv") if row["arm"] == "rest"}
    assert float(accepted) > 3


def test_a_broken_trace_is_reported_by_the_name_the_user_gave_it(small: Load, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n1,x,5\n")
    workload = {"trace": {"path": "mine.csv"}, "arrivals": {"kind": "closed", "max_concurrency": 2}}
    with pytest.raises(ScenarioError, match=r"mine\.csv:3") as caught:
        run(small(tmp_path, workload=workload), tmp_path / "out", jobs=1)
    assert "inputs" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_replicates_and_arms_can_be_narrowed(small: Load, tmp_path: Path) -> None:
    run_dir = run(small(), tmp_path, arms=["k3"], replicates=1, jobs=1)
    assert {(row["arm"], row["replicate"]) for row in rows(run_dir, "summary.csv")} == {("plain", "0"), ("k3", "0")}
    with pytest.raises(ScenarioError, match="no such arm: k4; there are plain, k3"):
        run(small(), tmp_path, arms=["k4"])


def test_arms_meet_the_same_requests(finished: Path) -> None:
    experiment = load(finished)
    cell = str(experiment.summary["cell_id"].iloc[0])
    plain, fast = (experiment.requests(cell, arm) for arm in ("plain", "k3"))
    for column in ("prompt_tokens", "output_tokens", "class"):
        assert (plain[column] == fast[column]).all()


def test_progress_counts_to_the_end(small: Load, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    run(small(), tmp_path, jobs=1, progress=lambda done, total, label: seen.append((done, total)))
    assert seen == [(i, 12) for i in range(1, 13)]


def test_when_nothing_runs_nothing_is_written(small: Load, tmp_path: Path) -> None:
    loaded = small(model="llama-3.1-405b", sweep={"replicates": 1})
    with pytest.raises(SimError, match="GiB") as caught:
        run(loaded, tmp_path, jobs=1)
    assert caught.value.exit_code == CapacityError.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_some_failed_runs_leave_a_partial_result(small: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flaky(_: Serial, function: Callable[[Task], Outcome], tasks: list[Task]) -> Any:
        for index, task in enumerate(tasks):
            bad = task.arm == "k3" and task.vary[AXIS] == 4
            yield index, Outcome(None, "ValueError: went wrong\n", 1) if bad else function(task)

    monkeypatch.setattr(Serial, "run", flaky)
    run_dir = run(small(), tmp_path, jobs=1)
    manifest = load(run_dir).manifest
    assert manifest["status"] == "partial"
    assert [cell["state"] for cell in manifest["cells"]] == ["done", "done", "partial"]
    assert manifest["cells"][2]["failures"][0]["reason"] == "ValueError: went wrong"
    assert {(row["arm"]) for row in rows(run_dir, "summary.csv") if row[f"vary.{AXIS}"] == "4"} == {"plain"}


def test_a_broken_law_comes_with_its_traceback_and_the_command_that_replays_it(
    small: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise InvariantError("blocks lost")

    monkeypatch.setattr("sim.experiment.task.simulate_arm", broken)
    with pytest.raises(SimError) as caught:
        run(small(), tmp_path, arms=["k3"], replicates=1, jobs=1)
    assert caught.value.exit_code == 1
    *trace, replay, law = str(caught.value).splitlines()
    assert trace[0].startswith("Traceback")
    assert law == "blocks lost"
    arguments = shlex.split(replay.removeprefix("replay: specsim run SCENARIO "))
    assert arguments[:6] == ["--seed", "0", "--arms", "plain", "--replicates", "1"]
    again = small(None, sweep={"replicates": 2, "vary": {}})
    assert cell_scenarios(load_mapping(plain_data(again.scenario), overrides=arguments[7::2]).scenario)[0].vary == {
        AXIS: 1
    }


def test_an_interrupt_keeps_finished_runs(small: Load, tmp_path: Path) -> None:
    def stop(done: int, total: int, label: str) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        run(small(), tmp_path, jobs=1, progress=stop)
    assert caught.value.run_dir is not None
    assert load(caught.value.run_dir).manifest["status"] == "interrupted"
    assert len(rows(caught.value.run_dir, "summary.csv")) == 5
    assert len(list(caught.value.run_dir.glob("cells/*/*/*/result.json"))) == 5


def test_a_full_disk_leaves_nothing_visible_and_can_be_resumed(
    small: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sim.experiment import files

    written: list[int] = []

    def full(handle: int) -> None:
        written.append(handle)
        if len(written) > 7:
            raise OSError(28, "No space left on device")

    loaded = small()
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(ResultsError, match="No space left") as caught:
            run(loaded, tmp_path / "a", jobs=1)
    assert caught.value.exit_code == 5
    assert list((tmp_path / "a" / "small").glob("[!.]*")) == []
    partial = find_unfinished(loaded, tmp_path / "a")
    assert partial is not None
    resumed = run(loaded, tmp_path / "a", jobs=1, how=HowToRun(resume=partial))
    assert digests(resumed) == digests(run(loaded, tmp_path / "b", jobs=1))


def test_a_folder_in_the_way_is_one_clear_error(small: Load, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="choose another folder with -o"):
        run(small(), tmp_path / "file", jobs=1)


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
def test_kill_minus_nine_leaves_no_visible_run_and_no_workers(small: Load, tmp_path: Path, delay_s: float) -> None:
    source = run(small(), tmp_path / "source", jobs=1) / "scenario.resolved.yaml"
    script = (
        "import sys; from pathlib import Path; from sim.experiment.run import run; "
        "from sim.scenario.load import load_scenario\n"
        "def say(done, total, label): print(done, flush=True)\n"
        "run(load_scenario(sys.argv[1], ['sweep.replicates=200']), Path(sys.argv[2]), jobs=2, progress=say)"
    )
    arguments = [sys.executable, "-c", script, str(source), str(tmp_path / "out")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        group = process.pid
    assert list((tmp_path / "out" / "small").glob("[!.]*")) == []
    deadline = time.monotonic() + 10
    while _group_lives(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _group_lives(group)
    loaded = load_scenario(str(source), ["sweep.replicates=200"])
    partial = find_unfinished(loaded, tmp_path / "out")
    assert partial is not None
    assert begun(partial)[0].scenario == loaded.scenario
    clear_litter(partial.parent, everything=True)
    assert list(partial.parent.iterdir()) == []


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_serial_execution_needs_no_pool(small: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "Worker", None)
    assert run(small(), tmp_path, jobs=1).is_dir()
    with executor.local_executor(8) as pool:
        assert [value for _, value in pool.run(abs, [-1])] == [1]
