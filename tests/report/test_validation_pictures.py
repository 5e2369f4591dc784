"""Pictures of validation pages: the same bytes for the same figures, valid SVG, nothing of a machine or day in it."""

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from sim.calibration.acceptance_moments import Moments
from sim.cli.validate import validate
from sim.report.validation.acceptance import acceptance_pictures
from sim.report.validation.canvas import Picture, decades, thinned, write_pictures
from sim.report.validation.overview import overview_pictures
from sim.report.validation.physics import physics_pictures
from sim.report.validation.server import server_pictures
from sim.report.validation.speedup import speedup_pictures
from sim.validation.acceptance import DataSet, Part, Score
from sim.validation.gates import gates
from sim.validation.markdown import render
from sim.validation.overview import of_acceptance, of_physics, of_server, of_speedup, render_overview
from sim.validation.physics import compare_folder
from sim.validation.scores import Score as Figure
from sim.validation.server_suite import run_server
from sim.validation.speedup import run_speedups

pytest.importorskip("matplotlib", reason="pictures need the extra specsim[plots]")


def neighbour(name: str) -> ModuleType:
    """A module of the tests of `validation`."""
    path = Path(__file__).parents[1] / "validation" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"specsim_tests_validation_{name}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """All four, on made-up tables."""
    tables, runs, timings = (neighbour(name) for name in ("conftest", "test_server_suite", "test_physics"))
    folder = tmp_path_factory.mktemp("data")
    publish = tables.publish.__wrapped__(folder)
    publish(
        *({"notes": "clones", "batch_or_concurrency": batch, "speedup": "1.4"} for batch in ("1", "8")),
        *(
            {"notes": "clones", "batch_or_concurrency": batch, "speedup": "1.2", "k_or_tree": "5"}
            for batch in ("1", "8")
        ),
        {"source": "other", "batch_or_concurrency": "2", "method": "n-gram"},
        {"source": "other", "batch_or_concurrency": "4", "method": "n-gram"},
    )
    runs.dump(runs.record(folder), runs.DENSE, runs.DENSE.replace(",4,1,", ",8,1,"))
    (folder / "gpu_timings" / "gemm.csv").write_text(timings.HEADER + timings.gemm_csv("h100-sxm"))
    shares = [Figure("plain", "g", f"{part} share", "1", 0.3, 0.4) for part in ("draft", "verify", "overhead")]
    return SimpleNamespace(
        speedup=run_speedups(folder), shares=shares, server=run_server(folder),
        physics=compare_folder(folder / "gpu_timings"), sets=[data_set()],
    )  # fmt: skip


def data_set() -> DataSet:
    curve = Moments(1 + 0.7 * np.arange(1, 11) ** 0.3, np.full(10, 0.3), np.full(10, 0.1))
    errors = Moments(np.full(10, 0.01), np.full(10, 0.01), np.full(10, 0.01))
    half = Part(curve, errors, (Score("regime", "x", curve, target=True), Score("i.i.d.", "y", curve)))
    return DataSet("made up", "eagle", 10, 100, (half, half), half, None)


def drawn(suites: SimpleNamespace) -> list[Picture]:
    summaries = [
        of_physics(suites.physics, [], []), of_acceptance(suites.sets), of_server(suites.server),
        of_speedup(suites.speedup, suites.shares),
    ]  # fmt: skip
    return [
        *physics_pictures(suites.physics, [], []), *acceptance_pictures(suites.sets), *server_pictures(suites.server),
        *speedup_pictures(suites.speedup, suites.shares), *overview_pictures(summaries),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def pictures(suites: SimpleNamespace) -> list[Picture]:
    return drawn(suites)


def texts(picture: Picture) -> str:
    return " | ".join(
        "".join(node.itertext()) for node in ElementTree.fromstring(picture.svg).iter() if node.tag.endswith("text")
    )


def by_name(pictures: Iterable[Picture]) -> dict[str, Picture]:
    return {picture.name: picture for picture in pictures}


def test_same_figures_same_bytes(suites, pictures):
    again = drawn(suites)
    assert [one.name for one in again] == [
        "physics-kernels", "acceptance-curves", "server-groups", "server-tpot", "server-ttft", "server-series",
        "speedup-clones", "speedup-served", "speedup-shares", "speedup-groups", "overview-errors", "overview-pairs",
    ]  # fmt: skip
    assert again == pictures


def test_nothing_of_the_day_the_version_or_the_machine(pictures):
    for picture in pictures:
        assert ElementTree.fromstring(picture.svg).tag.endswith("svg")
        assert not re.search(r"Matplotlib|<dc:date|DejaVu|/home|/tmp|nan", picture.svg)
        assert len(picture.svg) < 250_000
        assert picture.alt.endswith(".")


def test_pictures_show_the_figures_they_name(suites, pictures):
    found = by_name(pictures)
    shown = texts(found["speedup-clones"])
    assert "Llama-3.1-8B-Instruct, EAGLE-3" in shown
    assert "K = 3" in shown
    assert "K = 5" in shown
    assert f"RMS {suites.server.runs[0].series[0].rms:.1f} %" in texts(found["server-series"])
    assert "TPOT of dense servers" in texts(found["overview-errors"])
    assert "tokens per step: 20 figures, mean error 0.0 %" in texts(found["overview-pairs"])
    assert "GEMM: 18 kernels" in texts(found["physics-kernels"])


def test_pages_show_what_was_drawn(suites, pictures, tmp_path):
    shown = write_pictures(pictures, tmp_path)
    summaries = [of_server(suites.server), of_speedup(suites.speedup, [])]
    overview = render_overview(summaries, shown)
    assert overview.index("**Trust") < overview.index("overview-errors.svg") < overview.index("## Can I trust it")
    page = render(suites.physics, [], pictures=shown)
    assert "](pictures/physics-kernels.svg)" in page
    assert len(gates(suites.physics, []))
    for name in re.findall(r"\]\((pictures/[^)]*)\)", overview + page):
        assert (tmp_path / name).read_text().startswith("<?xml")


def test_the_command_writes_pages_with_their_pictures(tmp_path):
    runs = neighbour("test_server_suite")
    folder = runs.record(tmp_path)
    result = CliRunner().invoke(validate, ["server", "--data", str(folder), "--out", str(tmp_path / "page.md")])
    assert result.exit_code == 0, result.output
    assert "](pictures/server-series.svg)" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "pictures" / "server-series.svg").is_file()
    assert "specsim[plots]" not in result.output


def test_ticks():
    assert decades(0.4, 60) == [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    assert decades(3, 4e5) == [10.0, 100.0, 1e3, 1e4, 1e5]
    assert decades(0.95, 1.35) == [1.0, 1.1, 1.2, 1.3]
    assert thinned([1, 16, 64, 128], 1.5) == [1, 16, 64, 128]
    assert thinned([32, 48, 50, 64], 1.3) == [32, 48, 64]
