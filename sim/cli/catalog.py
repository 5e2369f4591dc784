"""`specsim catalog gpus|models|acceptance|slos [ID]`: what the catalogue knows, with its sources."""

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from sim.acceptance.catalogue import Entry, entries, find_entry
from sim.errors import ScenarioError
from sim.hardware.catalogue import find_gpu, gpu_ids
from sim.hardware.gpu import Gpu
from sim.models.catalogue import find_model, model_ids
from sim.models.model import Model
from sim.scenario.slo import find_slo, slo_ids

Facts = dict[str, object]


@click.command(name="catalog")
@click.argument("kind", type=click.Choice(["gpus", "models", "acceptance", "slos"]))
@click.argument("entry", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def catalog(kind: str, entry: str | None, as_json: bool) -> None:
    """List the known GPUs, models, SLOs or published acceptance, or show one with its sources.

    For a model, ID may also be a Hugging Face id or the path of a config.json.
    """
    found = _entries(kind, entry)
    if as_json:
        click.echo(json.dumps(found[0] if entry else found, indent=2))
    elif entry:
        click.echo(_facts_text(found[0]))
    else:
        _print_table(_COLUMNS[kind], found)


command = catalog


def _entries(kind: str, entry: str | None) -> list[Facts]:
    if kind == "gpus":
        return [_gpu_facts(find_gpu(name)) for name in ([entry] if entry else gpu_ids())]
    if kind == "slos":
        return [_slo_facts(name) for name in ([entry] if entry else slo_ids())]
    if kind == "acceptance":
        return [_acceptance_facts(found) for found in ([_entry(entry)] if entry else entries().values())]
    return [_model_facts(find_model(name, Path.cwd())) for name in ([entry] if entry else model_ids())]


def _gpu_facts(gpu: Gpu) -> Facts:
    return {
        "id": gpu.name.lower(),
        **gpu.model_dump(mode="json"),
        "memory_gib": round(gpu.memory / 2**30, 2),
        "memory_bandwidth_tb_s": gpu.memory_bandwidth / 1e12,
        "l2_mb": gpu.l2 / 1e6,
        "link_gb_s": gpu.link_bandwidth / 1e9,
        "pcie_gb_s": gpu.pcie_bandwidth / 1e9,
        **{f"{dtype}_tflops": getattr(gpu, dtype) / 1e12 for dtype in ("bf16", "fp8", "fp4", "int8")},
    }


def _model_facts(model: Model) -> Facts:
    return {
        "id": model.name.lower(),
        **model.model_dump(mode="json"),
        "attention": ("MLA" if model.is_mla else "GQA") + (f", window {model.window}" if model.window else ""),
        "parameters_billion": round(model.num_parameters / 1e9, 2),
        "active_billion": round(model.active_parameters / 1e9, 2),
        "weights_gib": round(model.weight_bytes() / 2**30, 2),
        "kv_bytes_per_token": model.kv_bytes_per_token(),
    }


def _slo_facts(name: str) -> Facts:
    slo = find_slo(name)
    found = {entry_id: find_slo(entry_id) for entry_id in slo_ids()}
    return {"id": next(entry_id for entry_id, entry in found.items() if entry is slo), **slo.model_dump(mode="json")}


def _entry(name: str) -> Entry:
    try:
        return find_entry(name)
    except ValueError as error:
        raise ScenarioError(str(error)) from None


def _acceptance_facts(entry: Entry) -> Facts:
    model = entry.acceptance()
    k = entry.ks[-1]
    spelt = model.spellings(k)
    return {
        **entry.model_dump(mode="json", exclude_none=True),
        "kind": model.kind,
        "k": f"{entry.ks[0]}-{k}" if len(entry.ks) > 1 else str(k),
        "tokens_per_step": round(spelt.tokens_per_step, 3),
        "acceptance_rate": round(spelt.acceptance_rate, 4),
        "alpha": round(spelt.alpha, 4),
        "conditional_rates": [round(rate, 4) for rate in spelt.conditional],
        "basis": "inferred" if entry.inferred else "published",
    }


_GPU_COLUMNS = {
    "id": "id",
    "memory_gib": "memory GiB",
    "memory_bandwidth_tb_s": "TB/s",
    "bf16_tflops": "bf16 TFLOP/s",
    "fp8_tflops": "fp8",
    "fp4_tflops": "fp4",
    "link": "link",
    "link_gb_s": "GB/s",
    "tdp_w": "W",
    "certain": "certain",
}
_MODEL_COLUMNS = {
    "id": "id",
    "parameters_billion": "params B",
    "active_billion": "active B",
    "layers": "layers",
    "attention": "attention",
    "kv_bytes_per_token": "KV B/token",
    "weight_dtype": "weights",
    "weights_gib": "GiB",
    "max_model_len": "max_model_len",
    "mtp_layers": "MTP",
}


_SLO_COLUMNS = {"id": "id", "ttft": "TTFT ms", "tpot": "TPOT ms", "e2el": "E2EL ms", "percentile": "% of requests"}
_ACCEPTANCE_COLUMNS = {
    "id": "id",
    "method": "method",
    "model": "model",
    "domain": "text",
    "temperature": "T",
    "k": "K",
    "tokens_per_step": "tokens/step at largest K",
    "acceptance_rate": "accepted/drafted",
    "alpha": "alpha",
    "basis": "basis",
    "source": "source",
}
_COLUMNS = {"gpus": _GPU_COLUMNS, "models": _MODEL_COLUMNS, "acceptance": _ACCEPTANCE_COLUMNS}
_COLUMNS |= {"slos": _SLO_COLUMNS}

#: Shown in a readable unit, or only of interest to drafters: left out of the text (the JSON has everything).
_RAW = {
    *("bf16", "fp8", "fp4", "int8", "memory", "memory_bandwidth", "l2", "link_bandwidth", "pcie_bandwidth"),
    *("has_lm_head", "has_embedding", "full_attn_every"),
}


def _facts_text(facts: Facts) -> str:
    shown = {key: value for key, value in facts.items() if key not in _RAW and (value or value is False)}
    return "\n".join(f"{key + ':':<24} {_plain(value)}" for key, value in shown.items())


def _print_table(columns: dict[str, str], rows: Sequence[Facts]) -> None:
    cells = [[_plain(row[key]) for key in columns] for row in rows]
    console = Console()
    if console.is_terminal:
        table = Table(*columns.values(), box=None, header_style="bold")
        for line in cells:
            table.add_row(*line)
        console.print(table)
        return
    widths = [max(len(line[i]) for line in [list(columns.values()), *cells]) for i in range(len(columns))]
    for line in [list(columns.values()), *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _plain(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)
