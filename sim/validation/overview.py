"""`results/validation/README.md`: all suites on one page, what was fitted, what was predicted, what cannot be checked."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.validation.acceptance_report import Target
from sim.validation.gates import Gate as PhysicsGate
from sim.validation.scores import Gate, Score
from sim.validation.suite_page import gate_table, page, summary_table

#: Groups of figures that are this far off on average are listed as gaps, per cent.
_GAP = 8.0

_INTRODUCTION = """# Validation: every claim, one command away

Written by `specsim validate all --data DIR`; a suite alone: `specsim validate physics|acceptance|server|speedup --data DIR`.
Any folder of the same form is scored the same way. Pages: [physics](physics.md), [acceptance](acceptance.md),
[server](server.md), [speedup](speedup.md).
"""

_FITTED = """## What was fitted, what was predicted

| parameters | fitted to | so these figures are in-sample |
| --- | --- | --- |
| kernel efficiencies, a profile per GPU | public kernel times (`gpu_timings`) | shipped columns of *physics*; its left-out columns are not |
| host times of engine `vllm` and `trtllm` | TPOT of whole servers in `e2e_tpot.csv` | TPOT of *server* (two parameters an engine, 620 settings); TTFT is not |
| engine `vllm-0.10`: host, draft pass, cost per row | SpecDecode-Bench Llama-3.1-8B EAGLE and EAGLE-3, Qwen3-8B absolute times, vLLM issue 20780 | these cells of *speedup* (four parameters, 27 cells); n-gram and time shares are not |
| engine `sglang`: the same and a fixed time per step | SpecBundle chains, SpecDecode-Bench chain, plain servers of DFlash | these cells of *speedup* (five parameters, 35 cells); trees, DFlash and its concurrencies are not |
| tree level cost | two SpecBundle trees | those rows |
| acceptance profiles | recorded sequences, GSM8K and ShareGPT | *acceptance*, where it says "as shipped" |

Predicted with nothing of theirs fitted: recorded vLLM runs, MagicDec, DFlash, n-gram, trees of SpecDecode-Bench, time shares,
EAGLE-3 table 3, the QPS curve. No case has parameters of its own. Where a source states no acceptance, its smallest load
sets the mean; that row is not scored.
"""

_CAUSES = """## Likely causes of the gaps known from the public data

Largest first; nothing here was mended by a constant for a case.

1. **TTFT of whole servers** (predicted too short): tokenising, HTTP and the client are not simulated; TensorRT-LLM admits
   prompts by rules of its own, of which only vLLM's are simulated; how the dumps were driven is not stated for all.
2. **Chains on SGLang 0.4** (EAGLE-3 paper, table 3): the profile is that of late 2025; the old scheduler did not overlap.
   An engine profile of its own would need its plain step times, which are not published.
3. **Trees at large batch** (SpecDecode-Bench k = 6 and 21, DFlash 60 tokens): `sglang` charges 15 us a row, which rests on four
   cells of one chain; trees show about half of that above 500 rows.
4. **DFlash on Llama** (too fast at concurrency 1 to 16): measured on SGLang's Spec-v1, whose draft pass was launched eagerly.
   **DFlash on Qwen** (too slow from 8 on): measured on Spec-v2, which overlaps host and drafting; `sglang` does not.
5. **MagicDec, plain steps of small batches** (too fast): its loop pays 2 to 3 ms a step for eager parts and plain NCCL
   all-reduces; engine `none` charges nothing. Its T_verify / T_plain is too low at 4k to 32k for grouped queries: 25 us per
   extra token measured, 15 priced.
6. **FP4 on Blackwell, TensorRT-LLM at small batch** (TPOT): one host time for all precisions.
7. **Drafter's share of EAGLE-3 at batch 64**: the launch of a draft pass is charged in full beside long kernels.
8. **8 QPS of the vLLM blog**: vLLM V0; lengths of its ShareGPT sample are not published.
"""

_UNCHECKED = """## What cannot be checked with public data

- Preemption and KV pressure under speculation; chunked prefill beside speculative steps; P99 at matched load with speculation:
  no public source measures them. Read such results as extrapolation from parts that were checked apart.
- A request-rate sweep of a current engine with and without speculation. The only published one is of vLLM V0.
- Mixtures of experts with speculation at known acceptance and batch.
- Speculation on GPUs other than A100, H100, H200 and B200.
- KV use on the RTX PRO 6000 run: its series was not recorded.
"""


class SuiteSummary(NamedTuple):
    """What the overview shows of a suite."""

    name: str
    gates: tuple[Gate, ...]
    groups: tuple[tuple[str, Sequence[Score]], ...] = ()
    not_run: int = 0


def of_physics(gates: Iterable[PhysicsGate]) -> SuiteSummary:
    """Gates on mean errors."""
    found = [Gate(g.name, g.limit_percent, None if g.found is None else g.found.mape) for g in gates]
    return SuiteSummary("physics", tuple(found))


def of_acceptance(targets: Iterable[Target]) -> SuiteSummary:
    """Gates on errors in per cent, or differences of correlations."""
    return SuiteSummary("acceptance", tuple(Gate(t.name, t.limit, t.found, "") for t in targets))


def render_overview(suites: Sequence[SuiteSummary]) -> str:
    """The whole page."""
    return page(
        _INTRODUCTION,
        "## Targets\n\n" + "\n\n".join(_gates(suite) for suite in suites),
        "## Gaps\n\n" + _gaps(suites),
        _CAUSES,
        _FITTED,
        _UNCHECKED,
    )


def _gates(suite: SuiteSummary) -> str:
    known = [gate for gate in suite.gates if gate.met is not None]
    reached = sum(bool(gate.met) for gate in known)
    rows = f", {suite.not_run} rows not run (with reasons on its page)" if suite.not_run else ""
    head = f"### {suite.name}: {reached} of {len(known)} reached{rows}"
    return f"{head}\n\n{gate_table(suite.gates)}"


def _gaps(suites: Sequence[SuiteSummary]) -> str:
    """Groups that are off by more than `_GAP` on average, the worst first."""
    groups = [(f"{suite.name}: {name}", scores) for suite in suites for name, scores in suite.groups if scores]
    sized = sorted(groups, key=lambda group: -_mean(group[1]))
    wide = [group for group in sized if _mean(group[1]) > _GAP]
    return f"Groups with a mean error above {_GAP:g}.\n\n" + summary_table(wide)


def _mean(scores: Sequence[Score]) -> float:
    return sum(abs(score.error) for score in scores) / len(scores)
