"""Physics of a scenario without running it: does every arm fit in memory, and how much is left for KV?"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sim.acceptance.base import AcceptanceModel
from sim.errors import CapacityError, Problem, ScenarioError
from sim.scenario.build import ArmSetup, set_up
from sim.scenario.cells import cell_scenarios, num_cells
from sim.scenario.load import LoadedScenario
from sim.scenario.preset_report import preset_lines
from sim.scenario.schema import Scenario
from sim.scenario.suggestions import flow
from sim.theory.spellings import from_survival
from sim.units import format_bytes

#: Cells whose deployments are tried; the rest is tried when it is run.
LINTED_CELLS = 64


@dataclass(frozen=True, slots=True)
class LintReport:
    """What `specsim check` says.

    Attributes:
        problems: reasons why a run would fail.
        summary: one line on the scenario and one per arm, with its effective speculation config.
    """

    problems: tuple[Problem, ...]
    summary: tuple[str, ...]


def lint(loaded: LoadedScenario) -> LintReport:
    """Bind every arm of the scenario as it stands and of its first cells."""
    scenario = loaded.scenario
    problems = [Problem("", f"arms.{arm}", message) for arm, message in _failures(loaded)]
    count = num_cells(scenario)
    runs = count * len(scenario.arms) * scenario.sweep.replicates
    head = f"{scenario.name}: {plural(len(scenario.arms), 'arm')} x {plural(count, 'cell')} x "
    head += f"{plural(scenario.sweep.replicates, 'replicate')} = {plural(runs, 'run')}"
    arms = [] if problems else [_describe(scenario, arm, loaded.base_dir) for arm in scenario.arms]
    return LintReport(tuple(problems), (head, *(f"  {line}" for line in preset_lines(scenario)), *arms))


def _failures(loaded: LoadedScenario) -> Iterator[tuple[str, str]]:
    """(arm, message) of each arm that cannot be bound; the same message once."""
    seen: set[tuple[str, str]] = set()
    cells = cell_scenarios(loaded.scenario)[:LINTED_CELLS]
    for cell in cells:
        for arm in cell.scenario.arms:
            try:
                set_up(cell.scenario, arm, loaded.base_dir)
            except (CapacityError, ScenarioError) as error:
                if (arm, str(error)) not in seen:
                    seen.add((arm, str(error)))
                    yield arm, str(error)


def broken_arms(scenario: Scenario, base_dir: Path) -> list[Problem]:
    """Arms that can be bound in no cell because the scenario is wrong; one that only lacks memory is not."""
    cells = cell_scenarios(scenario)[:LINTED_CELLS]
    found = ((arm, [_mistake(cell.scenario, arm, base_dir) for cell in cells]) for arm in scenario.arms)
    return [Problem("", f"arms.{arm}", errors[0]) for arm, errors in found if all(errors)]


def _mistake(scenario: Scenario, arm: str, base_dir: Path) -> str:
    try:
        set_up(scenario, arm, base_dir)
    except CapacityError:
        return ""
    except ScenarioError as error:
        return str(error)
    return ""


def _describe(scenario: Scenario, arm: str, base_dir: Path) -> str:
    setup = set_up(scenario, arm, base_dir)
    config = setup.arm.speculative_config.model_dump(mode="json", exclude_none=True)
    acceptance = f", acceptance {_spelt(setup.arm.acceptance, setup)}" if setup.arm.acceptance else ""
    acceptance += f", K rule {setup.arm.draft_length.kind}" if setup.arm.draft_length else ""
    if setup.arm.speculates:
        acceptance += f", verified by {setup.arm.rule.kind} ({'' if setup.arm.lossless else 'not '}lossless)"
    memory = setup.deployment.memory
    return (
        f"  {arm}: {flow(config)}{acceptance}; KV pool {format_bytes(memory.kv_pool)} = "
        f"{setup.deployment.num_kv_tokens:,} tokens, max_num_seqs {setup.engine.max_num_seqs}, "
        f"max_num_batched_tokens {setup.engine.max_num_batched_tokens}"
    )


def _spelt(model: AcceptanceModel, setup: ArmSetup) -> str:
    method = setup.arm.speculative_config
    k = method.max_draft_tokens
    if not k:
        return model.kind
    spelt = from_survival(setup.survival(k))
    share = method.accepted_share(spelt.accepted_per_step)
    words = [f"{spelt.tokens_per_step:.2f} tokens per step with the bonus"]
    words += [] if share is None else [f"{share:.0%} of drafts accepted"]
    words += [f"alpha {spelt.alpha:.3f}"] if method.one_alpha else []
    return f"{model.kind} ({', '.join(words)} at K={k})"


def plural(count: int, word: str) -> str:
    """`1 problem`, `2 problems`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
