"""What a published metric measures, in its unit: throughput, time per token, latency of whole requests, TTFT."""

import re
from typing import Literal, NamedTuple

from sim.validation.as_published import UnrunnableError
from sim.validation.harness.base import ArmTimes

Figure = Literal["throughput", "decode rate", "rate of a user", "TPOT", "TTFT", "latency"]

#: The first pattern that is found says what is measured.
_FIGURES: tuple[tuple[str, Figure], ...] = (
    (r"ttft|first token", "TTFT"),
    (r"tpot|itl|inter-token|ms per token|ms/token|(time|latency) per (output )?token", "TPOT"),
    (r"latency|e2e|seconds? per request|time per request", "latency"),
    (r"(per|/) ?(user|request|stream|sequence)", "rate of a user"),
    (r"decode (tok|rate|throughput)", "decode rate"),
    (r"throughput|tok(en)?s? ?(/|per) ?s|wall-?clock|speed-?up|^$", "throughput"),
)
#: Percentiles and rates of requests that met a target are not what these drives measure.
_OTHERS = r"\bp\d\d|median|percentile|goodput|acceptance only"
#: Rates whose ratio is that of output tokens, but not they themselves.
_RATIO_ONLY = r"total tok|input|request(s| throughput)|req/s|ratio|wall-?clock|speed-?up|^$"


class Metric(NamedTuple):
    """A published metric.

    Attributes:
        figure: what it measures.
        scale: our figure in its unit.
        per_gpu: whether it is divided by the number of GPUs.
        absolute: whether an arm's own figure can be compared, not only the ratio of the arms.
    """

    figure: Figure
    scale: float
    per_gpu: bool
    absolute: bool

    @property
    def is_time(self) -> bool:
        """Whether small values are good."""
        return self.figure in ("TPOT", "TTFT", "latency")

    def of(self, times: ArmTimes, batch: float, num_gpus: int) -> float:
        """The figure of an arm, in the unit of the source.

        Args:
            times: what was measured of the arm.
            batch: batch or concurrency.
            num_gpus: GPUs of the server.
        """
        value = {
            "throughput": times.tokens_per_s,
            "decode rate": batch * 1e3 / times.tpot_ms if times.tpot_ms else 0.0,
            "rate of a user": 1e3 / times.tpot_ms if times.tpot_ms else 0.0,
            "TPOT": times.tpot_ms,
            "TTFT": times.ttft_ms,
            "latency": times.e2el_s,
        }[self.figure]
        return value * self.scale / (num_gpus if self.per_gpu else 1)


def metric(text: str) -> Metric:
    """What a source calls a metric; throughput where the column is blank.

    Raises:
        UnrunnableError: nothing that is simulated.
    """
    words = text.strip().lower()
    found = next((figure for pattern, figure in _FIGURES if re.search(pattern, words)), None)
    if found is None or re.search(_OTHERS, words):
        raise UnrunnableError(f"metric {text!r} is not simulated")
    milliseconds = bool(re.search(r"\bms\b|milli", words))
    seconds = not milliseconds and bool(re.search(r"\bs\b|\bsec", words))
    scale = 1e3 if found == "latency" and milliseconds else 1e-3 if found in ("TPOT", "TTFT") and seconds else 1.0
    return Metric(found, scale, "per gpu" in words or "/gpu" in words, not re.search(_RATIO_ONLY, words))
