"""What each arm carries within the SLO, and the fleets for a load, as text."""

from collections.abc import Iterator, Mapping
from typing import Any

from sim.report.plain_text import columns, count, number
from sim.report.terminal import wrapped
from sim.report.wording import clean, percent

Json = Mapping[str, Any]

_LIMITS = {"ttft": "TTFT", "tpot": "TPOT", "e2el": "E2E latency", "saturation": "saturation", "": "-"}


#: What to do about runs that are too short.
_LONGER = "Raise workload.num_requests, or leave it out (null): then the search chooses."


def capacity_text(document: Json) -> str:
    """The content of `capacity.json` for a terminal."""
    lines = [f"Highest load within {_slo(document['slo'])} ({document['unit']})", ""]
    lines += columns(list(_table(document)), indent=2, left=1)
    lines.append("")
    for arm, found in document["arms"].items():
        for sentence in _remarks(clean(arm), found, document):
            lines += wrapped(sentence, "  ")
    if "fleet" in document:
        lines += ["", *_fleets(document["fleet"], document["baseline"])]
    for note in document.get("notes", ()):
        lines += wrapped(clean(note), "")
    return "\n".join(line.rstrip() for line in lines)


def _slo(slo: Json) -> str:
    limits = [f"{_LIMITS[name]} {number(slo[name])} ms" for name in ("ttft", "tpot", "e2el") if name in slo]
    return f"{', '.join(limits)} for {slo['percentile']:g} % of the requests"


def _table(document: Json) -> Iterator[list[str]]:
    percent_sure = f"{100 * document['confidence']:g} %"
    yield [
        "arm",
        "highest",
        percent_sure,
        "stopped by",
        "tok/s/GPU",
        "$/M output",
        "J/token (crude)",
        "against",
    ]
    for arm, found in document["arms"].items():
        value, at = found["capacity"], found.get("at") or {}
        yield [
            clean(arm),
            _capacity(found),
            f"{number(value['ci_low'])}-{number(value['ci_high'])}" if value and value["ci_low"] else "-",
            _LIMITS[found["limited_by"]],
            number(at.get("output_tok_s_gpu")),
            _dollars(at.get("usd_per_mtok_output")),
            _joules(at.get("energy")),
            _against(found.get("ratio")),
        ]


def _capacity(found: Json) -> str:
    status, value = found["status"], found["capacity"]
    if status == "never":
        return "none"
    if value is None:
        return f"? ({status})"
    return number(value["value"]) + (" ?" if status == "not resolved" else "")


def _dollars(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _joules(found: Json | None) -> str:
    if found is None:
        return "-"
    return f"{found['joules_per_token']:.2g} ({found['low']:.2g}-{found['high']:.2g})"


def _against(found: Json | None) -> str:
    if found is None:
        return ""
    mark = {"better": "+", "worse": "-"}.get(found["verdict"], "~")
    return f"{found['value']:.2f}x ({found['ci_low']:.2f}-{found['ci_high']:.2f}) {mark}"


def _remarks(arm: str, found: Json, document: Json) -> Iterator[str]:
    """Whatever the table cannot say."""
    status, unit = found["status"], document["unit"]
    if status == "never":
        share = percent(found["alone"]["goodput_frac"])
        limit = _LIMITS[found["limited_by"]]
        yield f"{arm}: no load: even alone on a server only {share} of the requests meet the SLO ({limit} is too tight)"
    elif status == "not resolved":
        yield f"{arm}: not resolved: the interval is wide; add --max-replicates or workload.num_requests"
    elif status == "above range":
        most = number(max(found["tested"]))
        yield f"{arm}: carries every load that was tried, up to {most} {unit}; raise the upper end with --range"
    elif status == "too short":
        yield f"{arm}: {_too_short(found, document)}"
    elif status == "below range":
        yield f"{arm}: carries none of the loads that were tried; lower the lower end with --range"
    if found.get("saturated_from") is not None:
        yield f"{arm}: the queue grows without end from {number(found['saturated_from'])} {unit} on (saturated)"


def _too_short(found: Json, document: Json) -> str:
    """What is known all the same, and what helps."""
    at = found.get("at")
    known = "not known" if at is None else f"at least {number(at['load'])} {document['unit']}"
    return (
        f"{known}. Runs at {number(found['too_short_from'])} {document['unit']} meet the SLO, but are too short to "
        f"tell whether the server keeps up: the last request arrives before the system has settled. {_LONGER}"
    )


def _fleets(fleet: Json, baseline: str) -> Iterator[str]:
    yield f"Replicas for {number(fleet['load'])} {fleet['unit']}, simulated behind a {fleet['router']} router"
    rows = [["arm", "replicas", "GPUs", "from one server", "one fewer", "$/h", "$/M output", "J/token (crude)"]]
    for arm, found in fleet["arms"].items():
        rows.append(
            [
                clean(arm),
                count(found["replicas"]),
                count(found["gpus"]),
                count(found["expected_replicas"]),
                _one_fewer(found),
                _dollars(found.get("usd_per_hour")),
                _dollars(found.get("usd_per_mtok_output")),
                _joules(found.get("energy")),
            ]
        )
    yield from columns(rows, indent=2, left=1)
    for arm, found in fleet["arms"].items():
        if found.get("gpus_saved"):
            yield from wrapped(_saved(clean(arm), found, fleet["arms"][baseline], clean(baseline)), "  ")
        if found["replicas"] is None and any(one["too_short"] for one in found["tried"]):
            yield from wrapped(f"{clean(arm)}: not known: runs of a fleet are too short to tell. {_LONGER}", "  ")
    for arm in fleet["unknown"]:
        yield f"  {clean(arm)}: no fleet: what one server carries is not known"


def _one_fewer(found: Json) -> str:
    """Why not one replica less."""
    for one in found["tried"]:
        if found["replicas"] and one["replicas"] == found["replicas"] - 1:
            saturates = 2 * one["saturated"] > one["num_replicates"]
            return "saturates" if saturates else f"{percent(one['goodput_frac'])} good"
    return "-"


def _saved(arm: str, found: Json, baseline: Json, baseline_name: str) -> str:
    """`eagle3 saves 2 of 8 GPUs`, and how sure that is."""
    saves = found["gpus_saved"]
    if saves["value"] is None:
        return f"{arm}: GPUs saved are not known"
    counted = saves["by_replicate"]
    spread = "by replicate: not known"
    if counted:
        span = f"{min(counted)}" + (f" to {max(counted)}" if max(counted) > min(counted) else "")
        spread = f"{span} in {len(counted)} of {saves['num_replicates']} replicates"
    sign = f"saves {saves['value']} of" if saves["value"] >= 0 else f"needs {-saves['value']} more than"
    text = f"{arm} {sign} the {baseline['gpus']} GPUs of {baseline_name} ({spread})"
    per = saves["gpus_per_gpu"]
    if per is None:
        return text
    return f"{text}; by capacity {per['value']:.2f} GPUs [{per['ci_low']:.2f}, {per['ci_high']:.2f}] for each of those"
