"""Can I trust it: what counts as checked, and what the first three lines of the overview make of it."""

from sim.validation.trust import Check, lines, trust_table, verdict


def checks(method: str, batch: float | None, *errors: float, what: str = "speed-up", case: str = "") -> list[Check]:
    return [Check(what, method, "vllm-0.10", "Hopper", batch, error, case) for error in errors]


def test_mean_and_worst_by_batch_and_what_was_fitted():
    fitted = checks("eagle3 chain", 16, -4.0, 8.0, case="VLLM20780-K3")
    found = lines([*checks("eagle3 chain", 1, 2.0, case="own"), *fitted, *checks("x", 65, -30.0)])
    assert [one.errors for one in found] == [((2.0,), (-4.0, 8.0), (), (), ()), ((), (), (), (-30.0,), ())]
    text = trust_table(found)
    assert "| speed-up | eagle3 chain | vllm-0.10 | Hopper | 2 % | 6 %, worst 8 | - | - | - | 3 | draft pass" in text
    assert "| speed-up | x | vllm-0.10 | Hopper | - | - | - | **30 %** | - | 1 |  |" in text


def test_rows_that_nothing_was_fitted_to_are_predictions():
    """Somebody's own rows, and GPU generations of an engine whose costs are from another one."""
    own = checks("eagle3 chain", 1, 2.0, case="q8-1")
    assert own[0].fitted == ""
    assert trust_table(lines(own)).splitlines()[-1].endswith("| 1 |  |")
    recorded = Check("TPOT", "plain decoding", "vllm", "Ada", 33.0, 1.0, "rtx4090_llama-3.1-8b")
    served = recorded._replace(generation="Hopper", case="meta-llama/Llama-3.1-70B, h100-sxm, vllm, fp8")
    assert [recorded.fitted, served.fitted] == ["", "host times"]
    known = [recorded] * 3 + [served] * 3 + checks("eagle chain", 1, 1.0, 1.0, 1.0, case="VLLM20780-K2")
    trust, *_ = verdict(lines(known)).splitlines()
    assert "TPOT with vllm on Ada; TPOT with vllm on Hopper*" in trust
    assert "speed-up with vllm-0.10 on Hopper (eagle chain*)" in trust


def test_the_first_lines_name_batches_where_not_all_are_alike():
    found = lines(
        [
            *checks("eagle3 chain", 1, 1.0), *checks("eagle3 chain", 8, 3.0), *checks("eagle3 chain", 64, 5.0),
            *checks("eagle3 chain", 512, 20.0, 22.0, -24.0), *checks("ngram chain", 4, 2.0, 2.0, 2.0),
            *checks("plain decoding", 4, 40.0, 40.0, 40.0, what="TTFT"), *checks("medusa tree", 1, 1.0),
        ]
    )  # fmt: skip
    trust, distrust, unchecked = verdict(found).splitlines()
    assert "speed-up with vllm-0.10 on Hopper (eagle3 chain at batch 1 to 64, ngram chain)" in trust
    assert "medusa" not in trust  # one figure is no reason
    assert "eagle3 chain at batch 65 and more" in distrust
    assert "TTFT with vllm-0.10 on Hopper" in distrust
    assert "suffix" in unchecked
    assert "ngram" not in unchecked
    assert "Ada" in unchecked


def test_ranges_of_batches_that_are_apart():
    found = lines([*checks("a", 1, 1.0, 1.0), *checks("a", 8, 12.0), *checks("a", 64, 1.0), *checks("a", 65, 1.0)])
    assert "(a at batch 1 and 17 and more)" in verdict(found)
    rated = lines([*checks("a", 8, 12.0), *checks("a", None, 1.0, 1.0, 1.0)])
    assert "(a at request rates)" in verdict(rated)
