"""Whole servers: time per output token at fixed concurrency, from kernels and engine profile, against public dumps.

    TPOT = T_decode(c, isl + osl/2) + (c/osl) T_prefill(isl)

at concurrency c: every output token of a request waits for one decode step, and for its share of the prompts that the
other c requests bring in. Nothing is fitted to whole servers but the two host times of an engine; `left_out` rows fit
those without the server they judge. Input: `e2e_tpot.csv` in a folder of the form of `data/gpu_timings`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from sim.calibration.fit import ErrorStats, error_stats
from sim.calibration.linear import DTYPES
from sim.calibration.tables import read_table
from sim.cost.base import BoundCost
from sim.cost.passes import plain_pass, prefill_pass
from sim.cost.roofline import Naive, Roofline, bind_roofline
from sim.deployment import Deployment, plan_deployment
from sim.errors import SimError
from sim.hardware.catalogue import find_gpu
from sim.hardware.engine_profile import find_engine
from sim.hardware.gpu import Gpu
from sim.hardware.profile import ChosenProfile, choose_profile
from sim.models.catalogue import find_model
from sim.models.model import Model
from sim.validation import as_published
from sim.validation.host_fit import Prediction, Setting, column, fit_host

#: The table of whole servers in a folder of timings.
SERVER_FILE = "e2e_tpot.csv"

_COLUMNS = (
    "model", "system", "backend", "precision", "isl", "osl", "concurrency", "tp", "tpot_ms", "moe_ep", "attention_dp",
)  # fmt: skip

#: Backends of the dumps that have an engine profile.
ENGINES = {"vllm": "vllm", "trtllm": "trtllm", "sglang": "sglang"}


class Server(NamedTuple):
    """What stays the same over the settings of one server."""

    model: str
    gpu: str
    backend: str
    precision: str


class ServerRow(NamedTuple):
    """One line of the table.

    Attributes:
        server: model, GPU, backend, precision.
        errors: of the shipped engine profile.
        left_out: of kernels with host times fitted to the other servers of the backend; None when there are none.
        naive: of datasheet peaks.
        capped: settings whose concurrency the KV pool cannot hold: priced at what it holds.
        skipped: settings that are not priced (experts sliced and spread, attention data parallelism, no fit).
    """

    server: Server
    errors: ErrorStats
    left_out: ErrorStats | None
    naive: ErrorStats
    capped: int
    skipped: int


#: The profile of a GPU.
Choose = Callable[[Gpu], ChosenProfile]


def server_tables(data_dir: Path, choose: Choose = choose_profile) -> list[ServerRow]:
    """One row per server of `e2e_tpot.csv`; servers with an unknown GPU, model or backend are left out.

    Args:
        data_dir: a folder of the form of `data/gpu_timings`; without that file there are no rows.
        choose: the profile to price a GPU with; by default the best shipped one.

    Raises:
        CalibrationError: the file is malformed; names columns and rows.
    """
    if not (data_dir / SERVER_FILE).is_file():
        return []
    predictions: dict[Server, list[Prediction]] = {}
    skipped: dict[Server, int] = {}
    for server, settings in read_settings(data_dir / SERVER_FILE).items():
        found = _predict(server, settings, choose)
        if found:
            predictions[server], skipped[server] = found, len(settings) - len(found)
    return [_row(server, predictions, skipped[server]) for server in sorted(predictions)]


class Measured(NamedTuple):
    """One line of the table; `ttft_ms` is NaN where it is not there."""

    tpot_ms: float
    ttft_ms: float


def read_settings(path: Path) -> dict[Server, dict[Setting, list[Measured]]]:
    """Measured times by server and setting; settings that are not tensor parallel get tp 0.

    Raises:
        CalibrationError, ScenarioError: the file is malformed; names columns and rows.
    """
    table = read_table(path, _COLUMNS, _COLUMNS[4:9], optional=(*_COLUMNS[9:], "ttft_ms"))
    first = table.optional_numbers("ttft_ms").tolist()
    spread = [_spread(*key) for key in table.keys(("tp", "moe_ep", "attention_dp"))]
    servers = [Server(m, g.replace("_", "-"), b, p) for m, g, b, p in table.keys(_COLUMNS[:4])]
    numbers = [table.numbers(name).tolist() for name in _COLUMNS[4:9]]
    found: dict[Server, dict[Setting, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    lines = zip(servers, spread, *numbers, first, strict=True)
    for server, whole, isl, osl, concurrency, tp, tpot, ttft in lines:
        layout = (0, False) if whole is None else (round(tp), whole)
        setting = Setting(round(isl), round(osl), round(concurrency), *layout)
        found[server][setting].append(Measured(tpot, ttft))
    return found


def _spread(tp: str, moe_ep: str, attention_dp: str) -> bool | None:
    """Whether experts are whole on their GPUs; None for a layout that is not priced."""
    if attention_dp not in _ONE:
        return None
    return False if moe_ep in _ONE else True if float(moe_ep) == float(tp) else None


_ONE = ("", "1", "1.0")


def _predict(server: Server, settings: Mapping[Setting, list[Measured]], choose: Choose) -> list[Prediction]:
    if server.backend not in ENGINES:
        return []
    predictions = []
    for setting, times in sorted(settings.items()):
        try:
            predictions.append(predict(server, setting, median(t.tpot_ms for t in times), choose))
        except SimError:
            continue
    return predictions


def predict(
    server: Server, setting: Setting, measured: float = math.nan, choose: Choose = choose_profile
) -> Prediction:
    """The closed form for one setting.

    Raises:
        SimError: the server or its layout cannot be priced.
    """
    gpu, model = find_gpu(server.gpu), served_model(server.model)
    return _price(server, setting, _deploy(server, model, gpu, setting), measured, choose(gpu))


def served_model(name: str) -> Model:
    """The catalogue's entry for a Hugging Face id, or of the shape of a name.

    Raises:
        SimError: there is none.
    """
    try:
        return find_model(name, Path())
    except SimError:
        return find_model(as_published.target(name).model, Path())


def _deploy(server: Server, model: Model, gpu: Gpu, setting: Setting) -> Deployment:
    if not setting.tp:
        raise SimError("only tensor parallelism is priced")
    return plan_deployment(
        model, None, gpu,
        tensor_parallel_size=setting.tp, drafter_tensor_parallel_size=setting.tp,
        weight_dtype=weight_dtype(server, model), drafter_weight_dtype="auto", kv_cache_dtype=kv_dtype(server, gpu),
        block_size=16, gpu_memory_utilization=0.9,
        max_num_batched_tokens=8192, max_num_seqs=max(setting.concurrency, 1), max_model_len=None,
        enable_expert_parallel=setting.expert_parallel,
    )  # fmt: skip


def weight_dtype(server: Server, model: Model) -> str:
    """`fp4` is the model's own 4-bit format where it has one, else NVFP4; none is that of name or model."""
    if server.precision == "fp4":
        return "mxfp4" if model.weight_dtype == "mxfp4" else "nvfp4"
    if not server.precision:
        named = as_published.weight_format(server.model)
        return model.weight_dtype if named == "auto" else named
    return DTYPES.get(server.precision.lower(), _WEIGHT_ONLY.get(server.precision.lower(), server.precision))


#: Precisions that calibration tables do not have.
_WEIGHT_ONLY = {"w4a16": "int4", "awq": "int4", "gptq": "int4", "w8a8": "int8"}


def kv_dtype(server: Server, gpu: Gpu) -> str:
    """FP8 for quantised models on Blackwell, 16 bits elsewhere.

    The dumps do not say. Where requests begin to queue does: Llama-70B on one B200 holds 60 of 9.2k tokens (64 queue
    little, 32 not at all), which only an FP8 cache has room for; on two H100 32 queue, which it would have room for.
    """
    return "fp8" if gpu.arch == "Blackwell" and server.precision in ("fp8", "fp4") else "auto"


def _price(
    server: Server, setting: Setting, deployment: Deployment, measured: float, chosen: ChosenProfile
) -> Prediction:
    isl, osl, concurrency = setting[:3]
    room = int(deployment.num_kv_tokens // (isl + osl // 2))
    batch = max(1, min(concurrency, room))
    cost = bind_roofline(deployment, chosen, Roofline(engine=ENGINES[server.backend]).bound_engine())
    kernels = _kernels_ms(cost, setting, batch)
    naive = _kernels_ms(Naive().bind(deployment), setting, batch)
    return Prediction(setting, batch, measured, kernels, kernels + 1e3 * cost.host.seconds(batch), naive)


def _kernels_ms(cost: BoundCost, setting: Setting, batch: int) -> float:
    decode = cost.target.price(plain_pass(batch, setting.isl + setting.osl // 2)).seconds
    return 1e3 * (decode + batch / setting.osl * cost.target.price(prefill_pass(setting.isl)).seconds)


def _row(server: Server, predictions: Mapping[Server, list[Prediction]], skipped: int) -> ServerRow:
    mine = predictions[server]
    measured = column(mine, "measured")
    others = [p for other, p in predictions.items() if other.backend == server.backend and other != server]
    return ServerRow(
        server=server,
        errors=error_stats(column(mine, "ours"), measured),
        left_out=_left_out(mine, others) if others else None,
        naive=error_stats(column(mine, "naive"), measured),
        capped=sum(p.batch < p.setting.concurrency for p in mine),
        skipped=skipped,
    )


def _left_out(mine: list[Prediction], others: Iterable[list[Prediction]]) -> ErrorStats:
    return error_stats(fit_host(others).times(mine), column(mine, "measured"))


def server_gates(rows: Iterable[ServerRow]) -> list[tuple[str, float, ErrorStats]]:
    """Name, limit in per cent and what was found, for servers that have a target: vLLM, dense FP8 and experts.

    Where another server of the backend is there, the host times are those fitted without the one that is judged.
    """
    found = []
    for row in rows:
        experts = bool(served_model(row.server.model).experts)
        if row.server.backend == "vllm" and (experts or row.server.precision == "fp8"):
            name = f"TPOT, {row.server.model.rsplit('/', 1)[-1]} {row.server.precision} on {row.server.gpu}"
            found.append((name, 12.0 if experts else 9.0, row.left_out or row.errors))
    return found


def server_lines(rows: Iterable[ServerRow]) -> list[str]:
    """The table as Markdown, and the host times that the shipped profiles hold."""
    lines = [
        "| server | backend | settings | MAPE | bias | p95 | worst | host left out | naive | capped | skipped |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        name, e = f"{row.server.model.rsplit('/', 1)[-1]} {row.server.precision} {row.server.gpu}", row.errors
        left_out = "-" if row.left_out is None else f"{row.left_out.mape:.1f}"
        errors = f"{e.mape:.1f} | {e.bias:+.1f} | {e.p95:.0f} | {e.worst:.0f}"
        lines.append(
            f"| {name} | {row.server.backend} | {e.points} | {errors} | {left_out} | {row.naive.mape:.0f} | "
            f"{row.capped} | {row.skipped} |"
        )
    for backend in sorted({row.server.backend for row in rows}):
        engine = find_engine(ENGINES[backend])
        host = f"{engine.host_base_ms.value} + {engine.host_per_request_ms.value} x sequences"
        lines += ["", f"{backend}: host {host} ms, {engine.per_row_us.value} us a row, x {engine.time_scale.value}."]
    return lines
