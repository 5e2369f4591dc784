"""Token trees in a scenario: engines' spellings, and what is refused between values."""

import pytest

HEAD = "model: llama-3.1-8b\nhardware: h100-sxm\narms:\n  plain: {}\n"
RANKS = "acceptance: {kind: per_rank, rates: [0.6, 0.1, 0.05]}"


def arm(config: str, acceptance: str = RANKS) -> str:
    return HEAD + f"  e: {{speculative_config: {{method: eagle3, {config}}}, {acceptance}}}\n"


def config_of(loaded):
    return loaded.scenario.arms["e"].speculative_config


def test_sglangs_spelling_counts_the_root(load) -> None:
    text = arm("speculative_num_steps: 5, speculative_eagle_topk: 4, speculative_num_draft_tokens: 8")
    config = config_of(load(text))
    assert (config.num_speculative_tokens, config.tree.depth, config.tree.top_k) == (7, 5, 4)
    assert config.max_accepted_tokens == 5


@pytest.mark.parametrize("rest", ["", ", speculative_eagle_topk: 1", ", speculative_num_draft_tokens: 6"])
def test_sglangs_top_k_of_one_is_a_chain(load, rest: str) -> None:
    config = config_of(load(arm(f"speculative_num_steps: 5{rest}", "acceptance: {kind: iid, rate: 0.5}")))
    assert (config.num_speculative_tokens, config.tree) == (5, None)


def test_vllms_token_tree(load) -> None:
    config = config_of(load(arm("num_speculative_tokens: 3, speculative_token_tree: '[(0,), (1,), (0, 0)]'")))
    assert config.tree.nodes == ((0,), (1,), (0, 0))
    loaded = load(arm("num_speculative_tokens: 2, speculative_token_tree: '[(0,), (0, 0)]'"))
    assert config_of(loaded).tree is None
    assert [note.split(": ", 1)[1] for note in loaded.notes] == [
        "arms.e.speculative_config.speculative_token_tree: a chain: no effect"
    ]
    assert config_of(load(arm("num_speculative_tokens: 2, speculative_token_tree: null"))).tree is None


def test_medusa_choices(load) -> None:
    text = HEAD + f"  e: {{speculative_config: {{method: medusa, medusa_choices: [[0], [1], [0, 0]]}}, {RANKS}}}\n"
    config = config_of(load(text))
    assert (config.num_speculative_tokens, config.tree.nodes) == (3, ((0,), (1,), (0, 0)))


@pytest.mark.parametrize(
    ("config", "key", "message"),
    [
        (
            "medusa_choices: [[0], [1]], num_speculative_tokens: 2, speculative_token_tree: '[(0,), (1,)]'",
            "speculative_token_tree",
            "contradicts medusa_choices",
        ),
        ("medusa_choices: [[0], x]", "medusa_choices", "a list of paths"),
        ("speculative_eagle_topk: 4, speculative_num_steps: 5", "speculative_num_steps", "needs speculative_num_draft"),
        ("speculative_num_steps: 5, speculative_num_draft_tokens: 9", "speculative_num_draft_tokens", "found 9; with"),
        ("speculative_num_steps: 5, num_speculative_tokens: 3", "speculative_num_steps", "contradicts num_speculative"),
        ("speculative_num_steps: x", "speculative_num_steps", "found 'x'; allowed: a whole number"),
        ("num_speculative_tokens: 2, speculative_token_tree: '[(0'", "speculative_token_tree", "a list of paths"),
        (
            "num_speculative_tokens: 2, speculative_token_tree: '[(0,), (1,)]', tree: {kind: widths, widths: [2]}",
            "speculative_token_tree",
            "contradicts tree",
        ),
    ],
)
def test_spellings_that_do_not_fit_together(problems_of, config: str, key: str, message: str) -> None:
    (problem,) = problems_of(arm(config))
    assert problem.key == f"arms.e.speculative_config.{key}"
    assert message in problem.message


DYNAMIC = "num_speculative_tokens: 7, tree: {kind: dynamic, depth: 5, top_k: 4}"


@pytest.mark.parametrize(
    ("config", "acceptance", "message"),
    [
        (DYNAMIC, "{kind: iid, rate: 0.5}", "describes a chain, not a token tree; state acceptance by rank"),
        (DYNAMIC, "{kind: length, tokens_per_step: 2.5, num_speculative_tokens: 7}", "this tree is 5 deep"),
        (DYNAMIC, "{kind: histogram, counts: [1, 2, 3]}", "allowed: at least the depth of the tree = 5"),
        (
            DYNAMIC + ", num_speculative_tokens_per_batch_size: [[1, 8, 7], [9, 64, 5]]",
            "{kind: length, tokens_per_step: 2.5, num_speculative_tokens: 5}",
            "whole tree of 7 nodes, not for 5 of them",
        ),
        (
            "num_speculative_tokens: 20, tree: {kind: dynamic, depth: 12, top_k: 4}",
            "{kind: per_rank, rates: [0.6, 0.1], confidence_spread: 0.1}",
            "to depth 10, but this tree is 12 deep",
        ),
    ],
)
def test_acceptance_must_describe_the_tree(problems_of, config: str, acceptance: str, message: str) -> None:
    (problem,) = problems_of(arm(config, f"acceptance: {acceptance}"))
    assert problem.key == "arms.e.acceptance"
    assert message in problem.message


def test_trees_do_not_go_with_asynchronous_scheduling(problems_of) -> None:
    (problem,) = problems_of(arm(DYNAMIC) + "engine: {async_scheduling: true}\n")
    assert "token trees are not known to work" in problem.message


def test_a_medusa_checkpoint_is_known_by_its_name(load) -> None:
    text = (
        HEAD
        + f"  e: {{speculative_config: {{model: FasterDecoding/medusa-vicuna, num_speculative_tokens: 3}}, {RANKS}}}\n"
    )
    assert config_of(load(text)).method == "medusa"


LENGTH = "acceptance: {kind: length, tokens_per_step: 3, num_speculative_tokens: 5}"
TREE = "num_speculative_tokens: 7, tree: {kind: dynamic, depth: 5, top_k: 4}"


def test_a_rule_that_cuts_the_tree_needs_acceptance_of_its_parts(load, problems_of) -> None:
    """As a table in `speculative_config` does; a gate leaves the tree whole."""
    cut = "draft_length: {kind: draft_len_schedule, draft_len_schedule: [[8, 7], [16, 3]]}"
    (problem,) = problems_of(arm(TREE, f"{LENGTH}, {cut}"))
    assert "holds for the whole tree of 7 nodes, not for 3 of them" in problem.message
    gate = "draft_length: {kind: acceptance_gate, acceptance_rate_window_size: 9, acceptance_rate_threshold: 0.1}"
    load(arm(TREE, f"{LENGTH}, {gate}"))
