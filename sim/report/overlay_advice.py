"""What to paste into a scenario after an overlay, and what to measure next."""

from collections.abc import Iterator
from pathlib import Path

from sim.acceptance.server_reports import read_server_report
from sim.errors import ScenarioError
from sim.experiment.overlay import Overlay
from sim.report.plain_text import labelled, printable

_MEANINGS = {
    "target_time": "all passes of the target, by efficiency of GPU and kernels",
    "host_time": "CPU time of the engine per step",
    "verify_time": "passes that verify drafts",
    "draft_time": "drafting",
    "acceptance": "probability that a draft is accepted",
}
_FORWARD = (
    "time {cases} steps of your engine with its profiler, fit them with `specsim calibrate` (table `step`), then state "
    "`cost_model: {{kind: roofline, profile: my-server.yaml}}`"
)
_NEXT = {
    "target_time": _FORWARD.format(cases="decode and prefill"),
    "host_time": "plain decoding at concurrency 1 and 2, where the host is the largest share of a step",
    "verify_time": _FORWARD.format(cases="verify"),
    "draft_time": "the same loads with another num_speculative_tokens and synthetic acceptance: what a further draft "
    "adds to ITL",
    "acceptance": "the same loads with `rejection_sample_method: synthetic`, which leaves acceptance no choice",
}


def meaning(factor: str) -> str:
    """What a factor of `what_if` scales, in words."""
    return _MEANINGS[factor]


def advice_lines(found: Overlay) -> Iterator[str]:
    """Lines to paste, then what would tell more."""
    answer = found.attribution
    if answer is None or found.other_workload:
        return
    if answer.alike and answer.explained:
        which = "one of these corrections" if len(answer.alike) > 1 and not answer.pair_needed else "the correction"
        yield f"  To see the curves with {which}, paste into the scenario:"
        yield "    what_if:"
        factors = answer.best.factors if answer.pair_needed else {answer.alike[0]: answer.best.factors[answer.alike[0]]}
        already = found.tests[0].scenario.what_if
        for name, value in factors.items():
            yield f"      {name}: {getattr(already, name) * value.estimate:.3g}"
        if "acceptance" in factors:
            yield from _measured_acceptance(found)
    suspects = list(dict.fromkeys([*answer.alike, *(answer.best.factors if answer.alike else ())]))
    for name in suspects:
        yield from labelled("  -", f"To pin down {name}: {_NEXT[name]}.", 4)
    if not any(test.speculates for test in found.tests):
        yield from labelled("  -", "Measure a speculative arm too: plain tests say nothing about drafting.", 4)
    elif all(test.speculates for test in found.tests):
        yield from labelled("  -", "Measure the plain arm at the same loads too: it tells target from drafts.", 4)
    if len({test.point.load for test in found.tests}) < 3:
        yield from labelled("  -", "Measure three or more loads: intervals need them, and factors differ by load.", 4)


def _measured_acceptance(found: Overlay) -> Iterator[str]:
    """The acceptance that the server reported, where one of the files can be read as such."""
    for test in found.tests:
        try:
            report = read_server_report(Path(test.point.source)) if test.speculates else None
        except ScenarioError:
            continue
        if report is not None:
            yield f"  Or, for arm {printable(test.arm)}, what the server reported there:"
            yield f"    acceptance: {{kind: measured, path: {printable(Path(test.point.source).resolve())}}}"
            return
