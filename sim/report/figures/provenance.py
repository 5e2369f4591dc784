"""Panel 10: what was run, with which versions and seeds, and what the words mean."""

from collections.abc import Mapping
from typing import Any

from sim.report.figures.badges import cost_profiles
from sim.report.reader import Results
from sim.report.wording import escape

#: name -> definition; vLLM's formulas, with the traps said aloud
GLOSSARY = {
    "TTFT": "Time to first token: end of the step that emits the first token minus arrival. It includes queueing and "
    "prefill.",
    "TPOT": "(E2E latency - TTFT) / (output tokens - 1) per request; undefined for one output token. GuideLLM and "
    "AIPerf call this inter-token latency.",
    "ITL": "Gap between streamed chunks, as vLLM reports it. Under speculation a chunk holds 1 to K+1 tokens, so ITL "
    "can go up while TPOT goes down. Judge speculation by TPOT.",
    "E2E latency": "Finish minus arrival.",
    "Output throughput": "Output tokens per second of simulated time over the measured window.",
    "Speed per user": "1000 / TPOT in ms: tokens per second that one user sees.",
    "Goodput": "Requests per second that meet every SLO of the scenario.",
    "Acceptance length": "Mean tokens per verify step with the bonus token: 1 + accepted / drafts (vLLM, SGLang). "
    "Without the bonus it is one less (TensorRT-LLM's forced length).",
    "Acceptance by position": "Unconditional: the first i drafts were all accepted, over all drafts. Conditional: "
    "the i-th accepted, given that the ones before were.",
    "Break-even": "The load at which the speed-up crosses 1, interpolated between tested loads; never extrapolated.",
    "CI": "Statistical uncertainty of this simulation: paired t-interval over replicates with other seeds. It "
    "says nothing about the cost model; the cost model band does.",
    "Cost model band": "Where the break-even moves when speculative steps take longer or shorter by the error of the "
    "cost profile while plain steps are right (the pessimistic reading: an error common to both would cancel).",
}


def provenance_html(results: Results) -> str:
    """The provenance section."""
    rows = "".join(
        f'<tr><th scope="row">{escape(k)}</th><td class="text">{escape(v)}</td></tr>' for k, v in _facts(results)
    )
    words = "".join(f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in GLOSSARY.items())
    return (
        '<section class="panel" id="provenance"><div class="bar"><p class="kicker">Provenance</p></div>'
        "<h2>This page can be reproduced from the scenario below</h2>"
        f'<div class="scroll"><table class="facts"><tbody>{rows}</tbody></table></div>'
        f'<details open><summary>Definitions</summary><dl class="glossary">{words}</dl></details>'
        "<details><summary>Resolved scenario</summary>"
        f"<pre>{escape_block(results.scenario_text)}</pre></details></section>\n"
    )


def escape_block(text: str) -> str:
    """Text of several lines for a `<pre>`."""
    return "\n".join(escape(line) for line in text.splitlines())


def _facts(results: Results) -> list[tuple[str, str]]:
    """Name and value of everything that identifies the run, as far as the manifest has it."""
    manifest = results.manifest
    names = (
        "command",
        "status",
        "tool_version",
        "schema_version",
        "git_rev",
        "python",
        "seed",
        "replicates",
        "confidence",
    )
    facts = [(name.replace("_", " "), str(manifest[name])) for name in names if manifest.get(name) is not None]
    facts += [
        (name.replace("_", " "), str(manifest[name])) for name in ("scenario_hash", "platform") if manifest.get(name)
    ]
    facts += [("engine", ", ".join(_presets(results)))] if _presets(results) else []
    for profile in cost_profiles(results):
        facts.append(("cost profile", ", ".join(f"{key} {value}" for key, value in profile.items())))
    packages = manifest.get("packages") or {}
    if isinstance(packages, Mapping) and packages:
        facts.append(("packages", ", ".join(f"{name} {version}" for name, version in packages.items())))
    seeds = sorted({str(seed) for seed in results.summary.get("seed", ())})
    if seeds:
        facts.append(("run seeds", ", ".join(seeds[:12]) + (" ..." if len(seeds) > 12 else "")))
    return facts


def _presets(results: Results) -> list[str]:
    """The engine presets of the run, such as `SGLang-like (preset version 1)`."""
    found = results.manifest.get("engine")
    return [str(name) for name in found] if isinstance(found, list) else []


def subtitle(results: Results) -> str:
    """Model, hardware, engine and size of the experiment in one line."""
    scenario = results.scenario
    model, hardware, engine = (scenario.get(key) for key in ("model", "hardware", "engine"))
    ways = engine.get("tensor_parallel_size", 1) if isinstance(engine, Mapping) else 1
    replicas = scenario.get("replicas", 1)
    replicates = results.summary["replicate"].nunique() if "replicate" in results.summary else 1
    parts = [
        _named(model, "target"),
        f"{ways}× {_named(hardware, 'gpu')}" if hardware else "",
        ", ".join(name.partition(" (")[0] for name in _presets(results)),
        f"{replicas} replicas" if replicas != 1 else "",
        _arrivals(scenario),
        f"{replicates} replicate{'s' if replicates != 1 else ''}, paired",
        f"{len(results.done)} operating point{'s' if len(results.done) != 1 else ''}",
    ]
    return " · ".join(part for part in parts if part)


def _named(value: Any, key: str) -> str:
    return str(value.get(key, "")) if isinstance(value, Mapping) else str(value or "")


def _arrivals(scenario: Mapping[str, Any]) -> str:
    workload = scenario.get("workload")
    arrivals = workload.get("arrivals") if isinstance(workload, Mapping) else None
    kind = arrivals.get("kind") if isinstance(arrivals, Mapping) else None
    return {
        "closed": "closed loop",
        "poisson": "Poisson arrivals",
        "gamma": "bursty arrivals",
        "trace": "arrivals of the trace",
    }.get(str(kind), str(kind or ""))
