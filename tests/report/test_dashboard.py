import json
import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sim.errors import ResultsError
from sim.report.dashboard import embed_json, write_dashboard
from sim.report.figures.doubts import warnings_of
from sim.report.figures.verdict import verdict_html
from sim.report.reader import load_results

Make = Callable[..., Path]
HOSTILE = (
    "</script><script>alert(\"x\")</script> & 'quoted' \u2028 <img src=https://evil.example/x onerror=alert(1)> שלום 😀"
)


class Page(HTMLParser):
    """Collects what the tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.raw: dict[str, str] = {}
        self._script = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = (dict(attrs).get("id") or "code") if tag in ("script", "style") else self._script

    def handle_endtag(self, tag: str) -> None:
        self._script = "" if tag in ("script", "style") else self._script

    def handle_data(self, data: str) -> None:
        if self._script:
            self.raw[self._script] = self.raw.get(self._script, "") + data
        else:
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(sweep_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    out = tmp_path_factory.mktemp("page") / "page.html"
    start = time.process_time()
    write_dashboard(sweep_dir, out)
    print(f"page of 9 x 3 x 5 runs: {out.stat().st_size / 1e6:.2f} MB in {time.process_time() - start:.2f} CPU-s")
    return Page(out.read_text(encoding="utf-8"))


def test_three_scripts_and_nothing_from_outside(page: Page) -> None:
    assert [script.get("id") for script in page.all("script")] == ["data", "plotlyjs", None]
    for _, attrs in page.tags:
        assert not {"src", "srcset", "action", "poster"} & set(attrs)
        assert not any(name.startswith("on") for name in attrs)
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert "@import" not in page.raw["code"]
    assert "url(" not in page.raw["code"]


def test_policy_forbids_everything_but_our_scripts(page: Page) -> None:
    (policy,) = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert re.fullmatch(r"'sha256-[\w+/=]{44}' 'sha256-[\w+/=]{44}'", rules["script-src"])
    assert not re.search(r"https?:|\*", policy)


def test_size_budget(sweep_dir: Path, tmp_path: Path) -> None:
    assert write_dashboard(sweep_dir, tmp_path / "p.html").stat().st_size <= 3_000_000


def test_every_plot_has_a_figure_and_a_table(page: Page) -> None:
    figures = json.loads(page.raw["data"])["figures"]
    plots = [div["id"] for div in page.all("div") if div.get("class") == "plot"]
    assert sorted(plots) == sorted(figures)
    views = [div for div in page.all("div") if div.get("class") == "view"]
    tables = [table for table in page.all("details") if table.get("class") == "data"]
    assert len(views) == len(tables) > 20
    assert all("template" not in figure["layout"] for figure in figures.values())


def test_panels_stand_in_the_order_of_a_planners_questions(page: Page) -> None:
    keys = [section.get("id") for section in page.all("section")]
    assert keys == [
        "verdict",
        "speedup",
        "loads",
        "pareto",
        "latency",
        "acceptance",
        "steps",
        "timeline",
        "memory",
        "provenance",
    ]


def test_titles_state_the_finding(page: Page) -> None:
    text = " ".join(page.text)
    assert "eagle3-k3 pays at every tested load" in text
    assert "eagle3-k7 pays up to about" in text
    assert "eagle3-k7 stops paying between 32 and 64 concurrent requests" in text
    assert "step times ± 8 % (one sigma)" in text


def test_hostile_strings_stay_text(make: Make) -> None:
    folder = make(
        loads=(1, 8), name=HOSTILE, rename={"eagle3-k3": "<svg onload=alert(1)>", "eagle3-k7": '"><b>%{x}'},
        failed={8: HOSTILE},
    )  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["warnings"] = [HOSTILE]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    text = write_dashboard(folder).read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.all("script")) == 3
    assert not page.all("img")
    assert not any("onload" in attrs or "onerror" in attrs for _, attrs in page.tags)
    shown = "".join(page.text)
    assert HOSTILE.replace("\u2028", " ") in shown
    assert "<svg onload=alert(1)>" in shown
    data = page.raw["data"]
    assert not set("<>&\u2028") & set(data)
    assert "%{x}" not in json.dumps(json.loads(data)["legends"])


def test_embedded_json_cannot_end_its_script() -> None:
    value = {"</script>": "<!--\u2028\u2029&", "n": [1.5, float("nan")]}
    text = embed_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"</script>": "<!--\u2028\u2029&", "n": [1.5, None]}


def test_inline_page_carries_plotly_as_it_is(make: Make) -> None:
    folder = make(loads=(1,), replicates=1)
    text = write_dashboard(folder, plotlyjs="inline").read_text(encoding="utf-8")
    assert [script.get("id") for script in Page(text).all("script")] == ["data", None, None]
    assert 4_000_000 < len(text) < 7_000_000


def test_page_goes_where_it_is_told_and_leaves_no_litter(make: Make, tmp_path: Path) -> None:
    folder = make(loads=(1, 8))
    before = set(folder.iterdir())
    assert write_dashboard(folder) == folder / "dashboard.html"
    assert set(folder.iterdir()) - before == {folder / "dashboard.html"}
    with pytest.raises(ResultsError, match="cannot be written"):
        write_dashboard(folder, folder / "missing" / "page.html")


def test_same_folder_same_page(make: Make) -> None:
    folder = make(loads=(1, 8))
    first = write_dashboard(folder).read_bytes()
    assert write_dashboard(folder).read_bytes() == first


def test_margins_below_the_cost_error_are_named(page: Page) -> None:
    assert (
        "Smaller than the error of the cost profile (8 %), so it may turn around: eagle3-k7 at concurrency 64"
        in "".join(page.text)
    )


def test_the_verdict_says_whose_output_changes(make: Make) -> None:
    results = load_results(make(lossy="eagle3-k7"))
    html = verdict_html(results)
    assert "<b>eagle3-k3</b> lossless: verified by greedy_draft" in html
    assert "<b>eagle3-k7</b> not lossless: typical changes the output" in html
    assert html.count(">lossy</small>") == 2  # one row in each of the two tables of speed-ups
    assert any("typical is not lossless" in note for note in warnings_of(results))
