"""What is asked of the runs: objectives and break-even."""

from collections.abc import Iterator

from sim.scenario.findings import Context, Finding, note, reads


@reads("slo")
def _slo_has_a_bound(context: Context) -> Iterator[Finding]:
    slo = context.scenario.slo
    if slo is not None and slo.ttft is None and slo.tpot is None and slo.e2el is None:
        yield Finding(("slo",), "states no bound; allowed: at least one of ttft, tpot, e2el (ms)", at_key=True)


@reads("slo", "sweep", "arms", "hardware")
def _breakeven(context: Context) -> Iterator[Finding]:
    sweep, path = context.scenario.sweep, ("sweep", "breakeven")
    if sweep.breakeven is None:
        return
    if not sweep.vary:
        yield note(path, "no effect: sweep.vary is empty")
    if "request_goodput" in sweep.breakeven.objectives and context.scenario.slo is None:
        index = sweep.breakeven.objectives.index("request_goodput")
        yield Finding((*path, "objectives", index), "request_goodput needs an `slo`")
    if "usd_per_mtok_output" in sweep.breakeven.objectives and context.scenario.hardware.cost_per_gpu_hour_usd is None:
        index = sweep.breakeven.objectives.index("usd_per_mtok_output")
        yield Finding((*path, "objectives", index), "usd_per_mtok_output needs `hardware.cost_per_gpu_hour_usd`")
