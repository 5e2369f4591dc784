"""The documentation is true to the code: generated tables, columns, examples and links."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from sim.metrics.record import RequestRecord, RunRecord, StepRecord
from sim.metrics.series import request_columns, timeline_columns
from sim.metrics.summary import Measure, measure_run, summary_row
from sim.metrics.window import Loop
from sim.scenario.load import load_mapping

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "README.md"])
#: Pattern of names that the page writes once for all.
PREFIXED = re.compile(r"^(mean|median|std|p90|p95|p99)_(ttft|tpot|itl|e2el)_ms$")


def generator(name: str = "generate"):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_scenario_reference_is_current():
    module = generator()
    assert module.page() == module.PAGE.read_text(encoding="utf-8"), "run `python docs/generate.py` and commit the page"


def test_methods_page_is_current():
    module = generator("generate_methods")
    assert module.page() == module.PAGE.read_text(encoding="utf-8"), "run `python docs/generate.py` and commit the page"


def test_engines_page_is_current():
    module = generator("generate_engines")
    assert module.page() == module.PAGE.read_text(encoding="utf-8"), "run `python docs/generate.py` and commit the page"


def test_examples_of_the_theory_page_are_what_the_command_prints():
    module = generator()
    page = module.THEORY.read_text(encoding="utf-8")
    assert page.count("```console") >= 7
    assert module.theory_page() == page, "run `python docs/generate.py` and commit the page"


def one_request() -> RunRecord:
    """A request of one step, the least that has all columns."""
    number = {name: np.ones(1, np.int64) for name in (*RequestRecord.__annotations__, *StepRecord.__annotations__)}
    number |= {"start_ns": np.zeros(1, np.int64), "replica": np.zeros(1, np.int64)}
    number["duration_ns"] = np.full(1, 10**9, np.int64)
    requests = {name: number[name] for name in RequestRecord.__annotations__}
    requests |= {"output_offset": np.zeros(1, np.int64), "class_id": np.zeros(1, np.int64)}
    requests |= {"arrival_ns": np.zeros(1, np.int64), "status": np.zeros(1, np.int8)}
    steps = {name: number[name] for name in StepRecord.__annotations__}
    steps |= {"op_seconds": np.zeros((1, 5)), "memory_bound": np.ones(1, np.bool_)}
    none = np.zeros(1, np.uint8)
    return RunRecord(RequestRecord(**requests), StepRecord(**steps), np.zeros(1, np.int32), none, none, 10, 16)


def documented_words(page: str) -> set[str]:
    return set(re.findall(r"\w+", (ROOT / "docs" / page).read_text(encoding="utf-8")))


def test_every_result_column_is_documented():
    run = measure_run(one_request(), Measure(Loop(1)))
    words = documented_words("reference/metrics.md")
    columns = [*summary_row(run), *request_columns(run, ("default",)), *timeline_columns(run.record)]
    missing = [name for name in columns if name not in words and not PREFIXED.match(name)]
    assert missing == []


def test_smallest_scenario_of_the_reference_is_one():
    text = (ROOT / "docs" / "reference" / "scenario.md").read_text(encoding="utf-8")
    block = re.search(r"```yaml\n(hardware.*?)```", text, re.DOTALL)
    loaded = load_mapping(yaml.safe_load(block[1]))
    assert set(loaded.scenario.arms) == {"plain", "eagle3-k3"}
    assert loaded.notes == ()


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(file), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_named_in_the_text_exist(page: Path):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:sim|tests|docs|scenarios)/[\w/.-]*\w/?)(?:\*\S*)?`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_module_stands_in_the_tree_of_the_architecture():
    words = documented_words("architecture.md")
    modules = [path for path in (ROOT / "sim").rglob("*.py") if not path.stem.startswith("_")]
    assert [str(m.relative_to(ROOT)) for m in modules if m.stem not in words and m.parent.name != "figures"] == []


SOURCES = sorted([*(ROOT / "sim").rglob("*.py"), *(ROOT / "tests").rglob("*.py")])


def test_citations_name_pages_and_headings_that_exist():
    """`docs/background/server.md, "KV blocks"` in comments and docstrings."""
    wrong = []
    for source in SOURCES:
        text = " ".join(line.strip().lstrip("#: ") for line in source.read_text(encoding="utf-8").splitlines())
        for name, heading in re.findall(r"(docs/[\w/.-]+\.md)(?:, \"([^\"]+)\")?", text):
            page = ROOT / name
            headings = page.read_text(encoding="utf-8") if page.exists() else ""
            if not page.exists() or (heading and not re.search(rf"^#+ {re.escape(heading)}$", headings, re.MULTILINE)):
                wrong.append(f"{source.relative_to(ROOT)}: {name} {heading}")
    assert wrong == []
