"""Published cells that an engine's costs are fitted to, and what the suite's own harness makes of them.

The cells are cases of the suite `speedup`, driven and solved as there; nothing here prices a step. GPU and model come
from the case, never from a fit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.hardware.engine_profile import EngineProfile
from sim.validation.case import Case
from sim.validation.cases import build_cases
from sim.validation.published import read_published
from sim.validation.runner import Runner


class Selection(NamedTuple):
    """Rows of a table: how the case's id begins, and what its K or tree holds; `plain_only`: not their speed-ups."""

    source: str
    case: str
    k: str = ""
    plain_only: bool = False


#: vLLM of mid-2025 on one H100: SpecDecode-Bench (8B models, K = 3) and issue 20780. N-gram has no launches, so it
#: tells them from the cost of a step.
VLLM = (
    Selection("GSM8K EAGLE-3", "SDB-F1-Llama-3.1-8B-GSM8K-EAGLE-3-"),
    Selection("GSM8K EAGLE", "SDB-F1-Llama-3.1-8B-GSM8K-EAGLE-b"),
    Selection("GSM8K n-gram", "SDB-F1-Llama-3.1-8B-GSM8K-ngram-k3-"),
    Selection("InstructCoder EAGLE-3", "SDB-F1-Llama-3.1-8B-InstructCoder-EAGLE-3-"),
    Selection("InstructCoder EAGLE", "SDB-F1-Llama-3.1-8B-InstructCoder-EAGLE-b"),
    Selection("Qwen3-8B thinking EAGLE-3", "SDB-F3-Qwen3-8B-Thinking-GSM8K-EAGLE-3"),
    Selection("issue 20780 over K", "VLLM20780"),
)
#: SGLang of late 2025: SpecForge's chains (H200), SpecDecode-Bench's chain and trees (H100), plain servers (B200).
SGLANG = (
    Selection("SpecForge chains", "SPECBUNDLE", "topk 1 "),
    Selection("SpecDecode-Bench chain", "SDB-F2", "chain"),
    Selection("SpecDecode-Bench trees", "SDB-F2", "tree"),
    Selection("DFlash plain Llama", "DFLASH-T5-GSM8K-DFlash", plain_only=True),
    Selection("DFlash plain Qwen", "DFLASH-T3", plain_only=True),
)


#: What each engine was fitted to.
FITTED = {"vllm-0.10": VLLM, "sglang": SGLANG}
#: In-sample without being in the fit of the engine: SpecForge's trees are twelve rows of two shapes, and the cost of
#: a level (`DynamicTree.level_us`) was read off just these two.
_LEVELS = {"sglang": (Selection("SpecForge trees", "SPECBUNDLE"),)}


def is_fitted(case: Case) -> bool:
    """Whether what its engine or tree costs was fitted to a case's speed-up, among others."""
    return any(
        case.row.case_id.startswith(one.case) and one.k in case.row.k_or_tree and not one.plain_only
        for one in (*FITTED.get(case.engine, ()), *_LEVELS.get(case.engine, ()))
    )


class Cell(NamedTuple):
    """One figure: where it is from, whether it is a plain arm's, and what is predicted for what was measured."""

    source: str
    case: str
    plain: bool
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Per cent of what was measured."""
        return 100 * (self.predicted / self.measured - 1)


def read_cases(folder: Path) -> list[Case]:
    """All cases of a data folder that can be run."""
    return build_cases(read_published(folder), folder)[0]


def selected(cases: Sequence[Case], selections: Iterable[Selection]) -> list[tuple[Selection, list[list[Case]]]]:
    """The curves of each selection: cases that differ in the load only, smallest first."""
    found = []
    for one in selections:
        curves: dict[tuple[str, ...], list[Case]] = defaultdict(list)
        for case in cases:
            if case.row.case_id.startswith(one.case) and one.k in case.row.k_or_tree:
                curves[case.curve].append(case)
        found.append((one, [sorted(curve, key=lambda case: case.load) for curve in curves.values()]))
    return found


def predict(chosen: Iterable[tuple[Selection, list[list[Case]]]], engine: EngineProfile | None) -> list[Cell]:
    """Every figure under an engine's costs; None for those of each case. A plain arm that rows share counts once."""
    runner, cells, plain = Runner(engine), list[Cell](), dict[tuple[object, ...], Cell]()
    for selection, curves in chosen:
        for curve in curves:
            tokens = _solved(runner, curve)
            if not selection.plain_only:
                cells += _speedups(runner, selection, curve, tokens)
            for case in (case for case in curve if case.row.plain_value):
                row = case.row
                about = (row.source, row.table, row.load, row.plain_value)
                plain[about] = plain.get(about) or _plain(runner, selection, case, tokens)
    return [*cells, *plain.values()]


def _stated(case: Case) -> float | None:
    return None if case.recorded else case.row.tokens_per_step


def _solved(runner: Runner, curve: Sequence[Case]) -> float | None:
    """The mean that explains the smallest load, where the source states none."""
    first = curve[0]
    if first.recorded or all(case.row.tokens_per_step for case in curve):
        return None
    return runner.solved(first, first.row.measured_speedup or 1.0)


def _speedups(runner: Runner, selection: Selection, curve: Sequence[Case], tokens: float | None) -> Iterator[Cell]:
    """All loads; without the first one where its speed-up was solved for."""
    for case in curve if tokens is None else curve[1:]:
        ours = runner.speedup(case, tokens or _stated(case))
        yield Cell(selection.source, case.row.case_id, False, ours, case.row.measured_speedup or 1.0)


def _plain(runner: Runner, selection: Selection, case: Case, tokens: float | None) -> Cell:
    ours = runner.figure(case, "plain", tokens or _stated(case))
    return Cell(f"{selection.source}, plain", case.row.case_id, True, ours, case.row.plain_value or 1.0)
