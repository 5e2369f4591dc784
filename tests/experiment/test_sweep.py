"""Sweeps that are killed, interrupted, split and distributed end in the same bytes as one that went through."""

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sim.errors import ResultsError
from sim.experiment.executor import Died, LocalPool
from sim.experiment.merge import merge
from sim.experiment.plan import Shard
from sim.experiment.remote import copy_to
from sim.experiment.results import load
from sim.experiment.rounds import HowToRun
from sim.experiment.run import begun, find_unfinished, run
from sim.experiment.store import RunFolder
from sim.scenario.load import LoadedScenario, load_scenario

Load = Callable[..., LoadedScenario]

#: A sweep in a process of its own that says how far it is: `python -c DRIVER scenario out jobs`.
DRIVER = """
import sys
from pathlib import Path
from sim.experiment.rounds import HowToRun
from sim.experiment.run import find_unfinished, run
from sim.scenario.load import load_scenario
def say(done, total, label):
    print(done, flush=True)
if __name__ == "__main__":
    loaded, out, jobs = load_scenario(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    how = HowToRun(resume=find_unfinished(loaded, out))
    if jobs > 1:
        run(loaded, out, progress=say, how=how)
    else:
        from sim.experiment.executor import local_executor
        run(loaded, out, progress=say, how=HowToRun(lambda: local_executor(1), resume=how.resume))
"""


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory, small_data: Callable[..., dict[str, Any]]) -> Path:
    vary = {"workload.arrivals.max_concurrency": "1:20", "arms.k3.acceptance.rate": [0.5, 0.7, 0.9]}
    path = tmp_path_factory.mktemp("grid") / "grid.yaml"
    path.write_text(json.dumps(small_data(name="grid", sweep={"replicates": 1, "vary": vary})))
    return path


@pytest.fixture(scope="module")
def uninterrupted(grid: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(load_scenario(str(grid)), tmp_path_factory.mktemp("whole"), jobs=1)


def digests(run_dir: Path) -> dict[str, str]:
    files = [path for path in run_dir.rglob("*") if path.is_file() and path.name != "timing.json"]
    return {str(path.relative_to(run_dir)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def command(grid: Path, out: Path, jobs: int = 1) -> list[str]:
    return [sys.executable, "-c", DRIVER, str(grid), str(out), str(jobs)]


@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_and_resumes_give_the_same_bytes(grid: Path, uninterrupted: Path, tmp_path: Path, kills: int) -> None:
    """SIGKILL after a random number of finished runs, at a random moment of the next one."""
    rng, done, lost = random.Random(4), 0, 0
    for _ in range(kills):
        with subprocess.Popen(command(grid, tmp_path), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(rng.randint(1, 5)):
                line = process.stdout.readline()
            time.sleep(rng.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            now = int(line)
        assert now > done, "a resumed sweep goes on where the killed one was"
        lost = max(lost, done - now)
        done = now
    assert list((tmp_path / "grid").glob("[!.]*")) == []
    loaded = load_scenario(str(grid))
    resumed = run(loaded, tmp_path, jobs=1, how=HowToRun(resume=find_unfinished(loaded, tmp_path)))
    assert digests(resumed) == digests(uninterrupted)
    assert [path.name for path in (tmp_path / "grid").iterdir()] == [resumed.name]


def test_sigterm_of_the_command_keeps_what_finished_and_says_how_to_go_on(grid: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "sim", "sweep", str(grid), "-o", str(tmp_path), "--jobs", "1"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not any(len(path.read_bytes().splitlines()) > 3 for path in tmp_path.rglob("journal.jsonl")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (run_dir,) = (tmp_path / "grid").glob("[!.]*")
    assert load(run_dir).manifest["status"] == "interrupted"
    assert f"specsim sweep {run_dir} --resume" in err
    assert find_unfinished(load_scenario(str(grid)), tmp_path) == run_dir
    held = RunFolder.reopen(run_dir)
    found = find_unfinished(load_scenario(str(grid)), tmp_path)
    assert found == held.path
    with pytest.raises(ResultsError, match="another process"):
        RunFolder.reopen(found)
    held.leave()


def test_damaged_results_are_made_again(grid: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """Bytes flipped in a journal and in run files of an interrupted sweep: resuming notices every one of them."""

    def stop(done: int, total: int, label: str) -> None:
        if done == 60:
            raise KeyboardInterrupt

    loaded = load_scenario(str(grid))
    with pytest.raises(KeyboardInterrupt):
        run(loaded, tmp_path, jobs=1, progress=stop)
    (partial,) = (tmp_path / "grid").iterdir()
    rng = random.Random(1)
    victims = [partial / "journal.jsonl", *rng.sample(sorted(partial.glob("cells/*/*/*/*")), 8)]
    for victim in victims:
        data = bytearray(victim.read_bytes())
        data[rng.randrange(len(data) // 2, len(data))] ^= 0x10
        victim.write_bytes(bytes(data))
    made: list[int] = []
    how = HowToRun(resume=find_unfinished(loaded, tmp_path) or partial)
    resumed = run(loaded, tmp_path, jobs=1, how=how, progress=lambda done, *_: made.append(done))
    assert digests(resumed) == digests(uninterrupted)
    assert len(made) > 60


def test_another_scenario_or_version_is_not_resumed(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, total: int, label: str) -> None:
        raise KeyboardInterrupt

    loaded = load_scenario(str(grid))
    with pytest.raises(KeyboardInterrupt):
        run(loaded, tmp_path, jobs=1, progress=stop)
    (partial,) = (tmp_path / "grid").iterdir()
    assert begun(partial)[0].scenario == loaded.scenario
    with pytest.raises(ResultsError, match="another scenario, seed"):
        run(load_scenario(str(grid), ["seed=1"]), tmp_path, jobs=1, how=HowToRun(resume=partial))
    assert load(partial).manifest["status"] == "interrupted", "what is refused stays where it was"
    monkeypatch.setattr("sim.experiment.run.code_digest", lambda: "other")
    with pytest.raises(ResultsError, match="--allow-mixed"):
        run(loaded, tmp_path, jobs=1, how=HowToRun(resume=partial))
    assert run(loaded, tmp_path, jobs=1, how=HowToRun(resume=partial, allow_mixed=True)).is_dir()


def test_merged_shards_are_the_whole_sweep(grid: Path, uninterrupted: Path, tmp_path: Path) -> None:
    loaded = load_scenario(str(grid))
    parts = [run(loaded, tmp_path / "parts", jobs=1, how=HowToRun(shard=Shard(i, 4))) for i in (1, 2, 3, 4)]
    assert {load(part).manifest["status"] for part in parts} == {"shard"}
    merged = merge([parts[2], parts[0], parts[3], parts[1]], tmp_path / "merged")
    assert digests(merged) == digests(uninterrupted)
    with pytest.raises(ResultsError, match="missing: shard 2/4, 4/4"):
        merge([parts[0], parts[2]], tmp_path / "bad")
    with pytest.raises(ResultsError, match="given twice: shard 1/4"):
        merge([*parts, parts[0]], tmp_path / "bad")
    other = run(load_scenario(str(grid), ["seed=9"]), tmp_path / "other", jobs=1, how=HowToRun(shard=Shard(2, 4)))
    with pytest.raises(ResultsError, match="another scenario"):
        merge([parts[0], other, parts[2], parts[3]], tmp_path / "bad")
    victim = next(parts[1].glob("cells/*/*/*/requests.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(ResultsError, match="damaged"):
        merge(parts, tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_a_full_disk_ends_with_5_and_leaves_no_truncated_file(grid: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for the disk: a file beyond the limit fails like a full one."""
    limit = max(path.stat().st_size for path in uninterrupted.rglob("result.json")) + 2000
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
        "from sim.cli import main; main(sys.argv[1:])"
    )
    arguments = ["sweep", str(grid), "-o", str(tmp_path), "--jobs", "1"]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 5, done.stderr
    assert os.strerror(errno.EFBIG) in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "grid").glob("[!.]*")) == []
    loaded = load_scenario(str(grid))
    resumed = run(loaded, tmp_path, jobs=1, how=HowToRun(resume=find_unfinished(loaded, tmp_path)))
    assert digests(resumed) == digests(uninterrupted)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_clear_error(grid: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ResultsError, match="choose another folder"):
        run(load_scenario(str(grid)), tmp_path / "out", jobs=1)


def test_results_are_copied_whole_and_the_manifest_last(uninterrupted: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="needs the extra `remote`")
    where = copy_to(uninterrupted, f"file://{tmp_path}/there")
    copy = tmp_path / "there" / "grid" / uninterrupted.name
    assert where == f"file://{copy}"
    assert digests(copy) == digests(uninterrupted)
    newest = max((path for path in copy.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime_ns)
    assert newest.name == "manifest.json"
    with pytest.raises(ResultsError, match="is complete, but could not be copied"):
        copy_to(uninterrupted, "nosuchscheme://x")


def hang_on_two(number: int) -> int:
    if number == 2:
        time.sleep(600)
    return number


def test_a_worker_that_hangs_costs_only_its_task() -> None:
    pool = LocalPool(2, stall_s=4.0)
    try:
        found = dict(pool.run(hang_on_two, list(range(6))))
    finally:
        pool.close()
    hung = found.pop(2)
    assert isinstance(hung, Died)
    assert "no answer for 4 s" in hung.reason
    assert found == {i: i for i in (0, 1, 3, 4, 5)}


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[tuple[Path, list["subprocess.Popen[bytes]"]]]:
    """A real Dask scheduler and worker processes on loopback."""
    file, quiet = folder / "scheduler.json", {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    base = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--nthreads", "1"]
    with ExitStack() as stack:
        commands = [[*base, "--no-dashboard", "--scheduler-file", str(file)]]
        commands += [[*worker, "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]] * workers
        started = []
        for one in commands:
            process = stack.enter_context(subprocess.Popen(one, cwd=folder, **quiet))  # type: ignore[call-overload]
            stack.callback(process.kill)
            started.append(process)
        yield file, started[1:]


def test_a_dask_cluster_that_loses_a_worker_gives_the_same_bytes(
    grid: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    pytest.importorskip("distributed", reason="needs the extra `dask`")
    with cluster(tmp_path, 2) as (file, workers):
        arguments = [sys.executable, "-m", "sim", "sweep", str(grid), "-o", str(tmp_path / "out"), "-q"]
        arguments += ["--executor", "dask", "--scheduler", str(file)]
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 90
            while not any(len(path.read_bytes().splitlines()) > 10 for path in tmp_path.rglob("journal.jsonl")):
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.02)
            workers[0].kill()
            _, err = process.communicate(timeout=90)
        assert process.returncode == 0, err
    (run_dir,) = (tmp_path / "out" / "grid").glob("[!.]*")
    assert json.loads((run_dir / "manifest.json").read_text())["status"] == "done"
    (run_dir / "dashboard.html").unlink()
    assert digests(run_dir) == digests(uninterrupted)
