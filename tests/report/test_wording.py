import pytest

from sim.report.axis import Axis, Cell
from sim.report.wording import change, clean, escape, factor, interval, listed, number, percent, plain, verdict_clause


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.0123"), (1.2345, "1.23"), (99.96, "100.0"), (4936.7, "4\u202f937"), (-1.5, "-1.50"),
     (None, "–"), (float("nan"), "–"), (float("inf"), "–")],
)  # fmt: skip
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_ratios_and_shares() -> None:
    assert factor(1.4161) == "1.42×"
    assert factor(None) == "–"
    assert percent(0.0333) == "3.3\u202f%"
    assert percent(0.4) == "40\u202f%"
    assert interval(0.9, 1.1, "x") == "0.90–1.10"
    assert interval(None, 1.0) == ""
    assert (change(1.42), change(0.9), change(2.5)) == ("42\u202f% faster", "10\u202f% slower", "2.5× as fast")
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed([]) == "none"


@pytest.mark.parametrize(
    "hostile",
    ["<b>x</b>", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "%{customdata[0]}", "$x^2$",
     "a\u202eb", "<<b>script>", "&lt;b&gt;"],
)  # fmt: skip
def test_plain_leaves_nothing_that_plotly_or_a_browser_reads(hostile: str) -> None:
    shown = plain(hostile)
    assert not set("<>&$\u202e") & set(shown)
    assert "%{" not in shown
    assert shown


def test_clean_and_escape_stop_terminal_and_markup() -> None:
    assert "\x1b" not in clean("\x1b[31mred")
    assert "\x9b" not in clean("\x9b31mred")
    assert escape("<a href=\"x\" title='y'>&") == "&lt;a href=&quot;x&quot; title=&#x27;y&#x27;&gt;&amp;"
    assert clean("\ud83d").encode() == b" "
    assert escape("שלום 😀") == "שלום 😀"


def test_verdicts_in_words() -> None:
    axis = Axis("workload.arrivals.max_concurrency", numeric=True)

    def said(*kinds: str) -> str:
        loads = [Cell(str(i), 2**i, "", done=True) for i in range(len(kinds))]
        return verdict_clause("mean_ttft_ms", axis, list(zip(loads, kinds, strict=True)))

    assert said("worse", "worse") == "worsens mean TTFT at every tested load"
    assert said("better", "not resolved", "worse") == (
        "improves mean TTFT up to 1 concurrent request and worsens mean TTFT from 4 concurrent requests on"
    )
    assert said("better", "not resolved") == "improves mean TTFT up to 1 concurrent request"
    assert said("not resolved", "worse") == "worsens mean TTFT from 2 concurrent requests on"
    assert said("worse", "better") == (
        "worsens mean TTFT up to 1 concurrent request and improves mean TTFT from 2 concurrent requests on"
    )
    assert said("worse", "better", "worse") == "improves mean TTFT at 1 and worsens it at 2 of 3 tested loads"
    assert said("better", "not resolved", "better") == (
        "improves mean TTFT at 2 of 3 tested loads, without a measurable difference at the others"
    )
    assert said("not resolved") == "does not change mean TTFT measurably"
    assert said() == "has no mean TTFT to compare"
