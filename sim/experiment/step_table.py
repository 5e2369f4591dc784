"""Decode step times over batch x K x context from the bound cost model: one uniform batch, no prefill, no queue."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sim.cost.base import OP_GROUPS
from sim.cost.passes import verify_pass
from sim.errors import ScenarioError
from sim.experiment.analytic import decode_step, largest_scheduled, requests_that_fit, speedup_and_band, tokens_per_step
from sim.experiment.regret import same_but_for_k
from sim.scenario.build import ArmSetup
from sim.speculation.chain import ChainMethod
from sim.speculation.plain import Plain


@dataclass(frozen=True, slots=True)
class StepRow:
    """One decode step of `batch` sequences with K = `num_draft_tokens`.

    Attributes:
        fits: KV pool, `max_num_seqs` and the token budget of a step hold this batch.
        bound: what limits the target's pass, `memory` or `compute`.
        op_ms: the target's time by op group.
        verify_token_us: what verifying one token more (K + 1 instead of K) would add to the target's pass, per token.
        tokens_per_step: per sequence, bonus token included; None where the acceptance model says nothing about this K.
        speedup: over plain decoding at the same batch and context; `_low`, `_high`: GPU times of the speculative step
            off by the profile's relative error.
    """

    batch: int
    num_draft_tokens: int
    context_tokens: int
    fits: bool
    total_ms: float
    target_ms: float
    draft_ms: float
    host_ms: float
    bound: str
    op_ms: dict[str, float]
    verify_token_us: float
    tokens_per_step: float | None
    ms_per_token: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None


@dataclass(frozen=True, slots=True)
class StepTable:
    """Steps of the arms that share a drafter and an acceptance, and so differ in K at most.

    Attributes:
        arms: their names.
        method: vLLM's name of the method.
        draft_count_varies: the text decides how many drafts are found; steps are priced as if all K were.
        arm_ks: every K that these arms use.
        rows: for context, batch, K, the last varying fastest.
        tree: K counts the nodes of a token tree; a smaller one is its first nodes.
    """

    arms: tuple[str, ...]
    method: str
    draft_count_varies: bool
    arm_ks: tuple[int, ...]
    rows: tuple[StepRow, ...]
    tree: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """What the tables cover; `ks` None: 0 and every K up to the largest that an arm of the table uses."""

    batches: tuple[int, ...]
    ks: tuple[int, ...] | None
    contexts: tuple[int, ...]


def with_draft_tokens(setup: ArmSetup, num_draft_tokens: int, plain: ArmSetup) -> ArmSetup | None:
    """The arm with another fixed K; plain decoding without a drafter for K = 0.

    None where K cannot be changed, or the acceptance says nothing of it.
    """
    config, acceptance = setup.arm.speculative_config, setup.arm.acceptance
    if num_draft_tokens == 0:
        return plain
    if acceptance is not None and acceptance.missing_draft_tokens([num_draft_tokens]):
        return None
    if not isinstance(config, ChainMethod) or not _tree_may_shrink(setup, num_draft_tokens):
        return setup if num_draft_tokens == config.max_draft_tokens else None
    changes = {"num_speculative_tokens": num_draft_tokens, "num_speculative_tokens_per_batch_size": None}
    changed = config.model_copy(update=changes)
    arm = setup.arm.model_copy(update={"speculative_config": changed, "draft_length": None})
    return replace(setup, arm=arm, drafter=changed.bind(setup.deployment, setup.cost))


def _tree_may_shrink(setup: ArmSetup, num_draft_tokens: int) -> bool:
    """Whether the acceptance model says something about the first nodes of the arm's tree; chains always may."""
    shape, model = setup.arm.speculative_config.tree_shape, setup.arm.acceptance
    if shape is None or model is None:
        return True
    try:
        model.check_tree(shape, num_draft_tokens)
    except ScenarioError:
        return False
    return True


def used_draft_tokens(setup: ArmSetup) -> tuple[int, ...]:
    """Every K of an arm's table by batch size, else the largest; 0 only for plain decoding."""
    most = setup.arm.speculative_config.max_draft_tokens
    table = setup.arm.k_rule.table(most)
    return (most,) if table is None else tuple(sorted({k for k in table.k if k})) or (most,)


def step_tables(setups: dict[str, ArmSetup], plain: ArmSetup, grid: Grid) -> tuple[StepTable, ...]:
    """A table for every group of arms with the same drafter and acceptance; plain decoding alone when none drafts."""
    groups: dict[str, list[str]] = {}
    for name, setup in setups.items():
        if setup.arm.speculates:
            groups.setdefault(same_but_for_k(setup.arm), []).append(name)
    tables = [_table([(name, setups[name]) for name in names], plain, grid) for names in groups.values()]
    return tuple(tables) or (_table([(name, setups[name]) for name in setups], plain, grid),)


def _table(arms: Sequence[tuple[str, ArmSetup]], plain: ArmSetup, grid: Grid) -> StepTable:
    used = tuple(sorted({k for _, setup in arms for k in used_draft_tokens(setup)}))
    ks = range(used[-1] + 1) if grid.ks is None else grid.ks
    setup = max((setup for _, setup in arms), key=lambda one: one.arm.speculative_config.max_draft_tokens)
    variants = [(k, variant) for k in ks if (variant := with_draft_tokens(setup, k, plain)) is not None]
    rows = tuple(_rows(variants, plain, grid))
    config = setup.arm.speculative_config
    names, is_tree = tuple(name for name, _ in arms), config.tree_shape is not None
    return StepTable(names, config.method, config.draft_count_varies, used, rows, is_tree)


def _rows(variants: Iterable[tuple[int, ArmSetup]], plain: ArmSetup, grid: Grid) -> Iterator[StepRow]:
    for context in grid.contexts:
        for batch in grid.batches:
            for k, setup in variants:
                yield _row(setup, plain, batch, k, context)


def _row(setup: ArmSetup, plain: ArmSetup, batch: int, k: int, context: int) -> StepRow:
    step = decode_step(setup, batch, context)
    more = setup.cost.target.price(verify_pass(batch, context, k + 1)).seconds
    fits = min(requests_that_fit(setup, context), largest_scheduled(setup)) >= batch
    tokens, gains = _gains(setup, plain, batch, context)
    total_ms = step.seconds() * 1e3
    return StepRow(
        batch=batch,
        num_draft_tokens=k,
        context_tokens=context,
        fits=fits,
        total_ms=total_ms,
        target_ms=step.target.seconds * 1e3,
        draft_ms=step.draft_s * 1e3,
        host_ms=step.host_s * 1e3,
        bound="memory" if step.target.memory_bound else "compute",
        op_ms={group: getattr(step.target, group) * 1e3 for group in OP_GROUPS},
        verify_token_us=(more - step.target.seconds) / batch * 1e6,
        tokens_per_step=tokens,
        ms_per_token=None if tokens is None else total_ms / tokens,
        speedup=gains[0],
        speedup_low=gains[1],
        speedup_high=gains[2],
    )


def _gains(
    setup: ArmSetup, plain: ArmSetup, batch: int, context: int
) -> tuple[float | None, tuple[float, float, float] | tuple[None, None, None]]:
    """Tokens per step, and speed-up with its band; None beyond the K that the acceptance model covers."""
    if isinstance(setup.arm.speculative_config, Plain):
        return 1.0, (1.0, 1.0, 1.0)
    try:
        return tokens_per_step(setup, batch), speedup_and_band(setup, plain, batch, context)
    except ScenarioError:
        return None, (None, None, None)
