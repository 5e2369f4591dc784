"""The page in a real browser: opened from a file, nothing fetched, every chart drawn, light and dark."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sim.report.dashboard import write_dashboard

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
TYPES = {"scatter", "bar"}


@dataclass
class Opened:
    """A loaded page with everything that it asked for and complained about."""

    page: Any
    requests: list[str]
    complaints: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
    )
    if not path:
        pytest.skip("no system Chromium")
    with sync_api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def sweep_page(synthetic: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dashboard(
        synthetic.write_results(tmp_path_factory.mktemp("sweep"), loads=(1, 8, 64, 256), replicates=3)
    )


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def go(path: Path, **options: Any) -> Opened:
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 1000}, **options})
        contexts.append(context)
        opened = Opened(context.new_page(), [], [])
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.on("console", lambda message: opened.complaints.append(message.text))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.goto(path.resolve().as_uri())
        opened.page.wait_for_selector("html[data-ready='1']", timeout=60_000)
        return opened

    yield go
    for context in contexts:
        context.close()


def _until(page: Any, expression: str) -> None:
    """Poll: the page's policy forbids the `eval` that `wait_for_function` needs."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never true: {expression}")


def _trace_types(page: Any) -> list[list[str]]:
    found: list[list[str]] = page.evaluate(
        "[...document.querySelectorAll('.plot')].filter(p => !p.closest('[hidden]'))"
        ".map(p => p._fullData.map(t => t.type))"
    )
    return found


def test_one_request_no_complaint_every_chart_drawn(visit: Callable[..., Opened], sweep_page: Path) -> None:
    opened = visit(sweep_page)
    assert opened.requests == [sweep_page.resolve().as_uri()]
    assert opened.complaints == []
    types = _trace_types(opened.page)
    assert len(types) == 3 + 4 + 2 + 3 + 3 + 1  # curves, CDFs, acceptance, step time, timeline, memory
    assert all(types)
    assert {name for each in types for name in each} == TYPES
    drawn = opened.page.evaluate("[...document.querySelectorAll('.plot svg.main-svg')].length")
    assert drawn >= len(types)
    assert opened.page.is_hidden("#trouble")


def test_dark_mode_recolours_page_and_charts(visit: Callable[..., Opened], sweep_page: Path) -> None:
    opened = visit(sweep_page, color_scheme="dark")
    color = "(() => document.querySelector('#speedup .plot')._fullData.find(t => t.name === 'eagle3-k3').line.color)()"
    background = "getComputedStyle(document.body).backgroundColor"
    assert opened.page.evaluate(color) == "#56b4e9"
    assert opened.page.evaluate(background) == "rgb(15, 18, 22)"
    opened.page.emulate_media(color_scheme="light")
    _until(opened.page, f"{color} === '#0072b2'")
    assert opened.page.evaluate(background) == "rgb(244, 245, 247)"
    assert opened.complaints == []


def test_switching_views_draws_the_other_chart(visit: Callable[..., Opened], sweep_page: Path) -> None:
    page = visit(sweep_page).page
    before = page.inner_text("#speedup h2 >> visible=true")
    page.click("#speedup .switch button:has-text('TTFT')")
    _until(page, "document.querySelector('#speedup-2-0')._fullData?.length > 0")
    assert "TTFT" in page.inner_text("#speedup h2 >> visible=true") != before
    page.select_option("#latency select", "0") if page.query_selector("#latency select") else page.click(
        "#latency .switch button >> nth=0"
    )
    _until(page, "document.querySelector('#latency-0-3')._fullData?.length === 3")
    assert "At 1 concurrent request," in page.inner_text("#latency h2 >> visible=true")


def test_an_arm_can_be_hidden_everywhere(visit: Callable[..., Opened], sweep_page: Path) -> None:
    page = visit(sweep_page).page
    page.click("#loads .legend button:has-text('eagle3-k7') >> visible=true")
    _until(
        page, "document.querySelector('#pareto .plot')._fullData.find(t => t.name === 'eagle3-k7').visible === false"
    )
    assert (
        page.get_attribute("#speedup .legend button:has-text('eagle3-k7') >> visible=true", "aria-pressed") == "false"
    )


def test_csv_has_full_precision_and_disarms_formulas(
    visit: Callable[..., Opened], synthetic: ModuleType, tmp_path: Path
) -> None:
    folder = synthetic.write_results(tmp_path, loads=(1, 8), replicates=2, rename={"eagle3-k3": "=1+1"})
    page = visit(write_dashboard(folder), permissions=["clipboard-read", "clipboard-write"]).page
    page.click("#speedup details.data summary >> visible=true")
    page.click("#speedup .copy >> visible=true")
    page.wait_for_selector("#speedup .copy:has-text('Copied')")
    head, first, *_ = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert head == "concurrency,arm,speed-up,95 % CI low,95 % CI high,pairs,note"
    assert first.startswith("1,'=1+1,")
    assert len(first.split(",")[2]) >= 9


@pytest.mark.parametrize("width", [420, 1400])
def test_nothing_sticks_out_sideways(visit: Callable[..., Opened], sweep_page: Path, width: int) -> None:
    page = visit(sweep_page, viewport={"width": width, "height": 900}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("loads", [(64,), (1, 2)])
def test_small_experiments_draw_every_chart(
    visit: Callable[..., Opened], synthetic: ModuleType, tmp_path: Path, loads: tuple[int, ...]
) -> None:
    key = synthetic.KEY if len(loads) > 1 else None
    opened = visit(write_dashboard(synthetic.write_results(tmp_path, loads=loads, replicates=2, key=key)))
    assert opened.complaints == []
    assert all(_trace_types(opened.page))


def test_inline_page_and_hostile_names_run_nothing(
    visit: Callable[..., Opened], synthetic: ModuleType, tmp_path: Path
) -> None:
    name = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    folder = synthetic.write_results(
        tmp_path, loads=(1, 8), replicates=2, name=name, rename={"eagle3-k3": "<img src=x onerror='window.hacked=1'>"}
    )
    opened = visit(write_dashboard(folder, plotlyjs="inline"))
    assert opened.page.evaluate("window.hacked") is None
    assert opened.complaints == []
    assert len(opened.requests) == 1
    assert opened.page.evaluate("document.querySelectorAll('img').length") == 0


def test_old_browser_gets_a_message(browser: Any, sweep_page: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(sweep_page.resolve().as_uri())
    page.wait_for_selector("#trouble:not([hidden])")
    assert "--plotlyjs inline" in page.inner_text("#trouble")
    context.close()
