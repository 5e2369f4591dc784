"""Every registered K rule, present and future, by the examples in its schema."""

from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
from pydantic import TypeAdapter

from sim.draft_length.base import DRAFT_LENGTH, ChangingDraftLength, DraftLength
from sim.errors import ScenarioError
from sim.metrics.record import RunRecord
from sim.scenario.build import simulate
from sim.scenario.load import load_mapping
from sim.scenario.schema import Scenario

ADAPTER = TypeAdapter(Annotated[DraftLength, DRAFT_LENGTH])
EXAMPLES = [
    pytest.param(example, id=f"{spec.__name__}-{index}")
    for spec in dict.fromkeys(DRAFT_LENGTH.members().values())
    for index, example in enumerate(spec.model_config.get("json_schema_extra", {}).get("examples", [None]))
]
every_rule = pytest.mark.parametrize("written", EXAMPLES)
K = 7


def read(written: object) -> DraftLength:
    assert written is not None, "every rule declares examples in model_config['json_schema_extra']"
    return ADAPTER.validate_python(written)


def scenario(written: object, blocks: int | None = None, async_scheduling: bool = False, **arm: object) -> Scenario:
    """A busy little server on which a third of the requests opt out, short of KV blocks when asked."""
    lengths = {"kind": "lognormal", "mean": 80, "cv": 0.8, "min": 1, "max": 300}
    return load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "cost_model": {"kind": "linear", "base_ms": 6, "per_token_us": 30, "draft": {"base_ms": 0.4}},
            "engine": {"max_model_len": 700, "num_gpu_blocks_override": blocks, "async_scheduling": async_scheduling}
            | {"max_num_seqs": 24},
            "arms": {
                "plain": {},
                "rule": {
                    "speculative_config": {"method": "eagle3", "num_speculative_tokens": K},
                    "acceptance": {"kind": "iid", "rate": 0.6},
                    "draft_length": written,
                }
                | arm,
            },
            "workload": {
                "arrivals": {"kind": "poisson", "request_rate": 40},
                "num_requests": 36,
                "classes": [
                    {"name": "yes", "share": 0.7, "prompt_tokens": lengths, "output_tokens": lengths},
                    {
                        "name": "no",
                        "share": 0.3,
                        "speculate": False,
                        "prompt_tokens": lengths,
                        "output_tokens": lengths,
                    },
                ],
            },
        },
        Path(),
    ).scenario


def columns(run: RunRecord) -> list[np.ndarray]:
    return [run.emission_step, run.drafted, run.accepted, run.steps.duration_ns, run.steps.num_draft_tokens]


@every_rule
def test_reads_back_from_its_own_dump(written) -> None:
    rule = read(written)
    assert ADAPTER.validate_python(rule.model_dump(mode="json")) == rule
    assert type(rule).__doc__
    assert rule.wrong_for(K) == ""
    assert isinstance(rule, ChangingDraftLength) or rule.switching.switch_s == 0.0


@every_rule
@pytest.mark.parametrize("blocks", [None, 60])
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_serves_everybody_and_drafts_within_k(written, blocks: int | None, async_scheduling: bool) -> None:
    if async_scheduling and read(written).needs_drafts:
        with pytest.raises(ScenarioError, match="does not wait for"):
            scenario(written, blocks, async_scheduling)
        return
    one = scenario(written, blocks, async_scheduling)
    run, plain = (simulate(one, arm, 0, Path()) for arm in ("rule", "plain"))
    assert (run.requests.finish_ns > 0).all()
    assert (run.requests.emitted_tokens == plain.requests.emitted_tokens).all()
    assert (run.accepted <= run.drafted).all()
    assert 0 < run.steps.num_draft_tokens.max() <= K
    assert run.drafted.max() <= K
    opted_out = np.repeat(run.requests.class_id == 1, run.requests.output_tokens)
    assert not run.drafted[opted_out].any()
    assert (run.steps.preemptions.sum() > 0) == (blocks is not None)
    again = simulate(one, "rule", 0, Path())
    assert all(np.array_equal(a, b) for a, b in zip(columns(run), columns(again), strict=True))


@every_rule
def test_leaping_changes_nothing_and_a_table_says_what_the_bound_rule_says(written) -> None:
    one, table = scenario(written), read(written).table(K)
    leaping = simulate(one, "rule", 0, Path())
    if table is not None:  # other rules never leap
        stepping = simulate(one, "rule", 0, Path(), leap=False)
        assert all(np.array_equal(a, b) for a, b in zip(columns(leaping), columns(stepping), strict=True))
        assert leaping.steps.num_draft_tokens.tolist() == [table.at(n) for n in leaping.steps.num_seqs.tolist()]
