"""vLLM configs pasted into a scenario: what has no effect is taken out and reported, aliases become our own words."""

from collections.abc import Collection
from dataclasses import dataclass, field

from sim.errors import Problem, ScenarioError
from sim.scenario import pasted_rules
from sim.scenario.document import Node, Path, dotted, from_plain, problem_at
from sim.scenario.engine import INSTEAD, ONLY_VALUE, EngineArgs
from sim.scenario.pasted_methods import ALGORITHM, ALGORITHMS, DRAFTER, complaint, method_of_drafter
from sim.scenario.pasted_trees import spelled_out
from sim.scenario.suggestions import found
from sim.scenario.yaml_reader import read_yaml
from sim.speculation.base import SPECULATION

_UNUSED = """
    model revision code_revision quantization max_model_len enforce_eager moe_backend attention_backend kv_cache_dtype
    tensor_parallel_size draft_tensor_parallel_size prompt_lookup_max prompt_lookup_min disable_by_batch_size
    disable_padded_drafter_batch disable_mqa_scorer disable_logprobs parallel_drafting acceptance_method
    typical_acceptance_sampler_posterior_threshold
    typical_acceptance_sampler_posterior_alpha posterior_threshold posterior_alpha speculative_token_tree
    use_local_argmax_reduction use_heterogeneous_vocab draft_load_config target_model_config draft_model_config
    suffix_decoding_max_tree_depth suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor
    suffix_decoding_min_token_prob
"""
#: Keys of vLLM's `SpeculativeConfig`, old and new, that no method here uses unless its spec declares them.
SPECULATIVE_NO_EFFECT = frozenset(_UNUSED.split())
_SYNTHETIC = ("synthetic_acceptance_rates", "synthetic_acceptance_length")
_EXPLAINED = {
    "engine.attention_backend": "accepted, no effect; for FlashInfer on A100, L40S or RTX GPUs say "
    "cost_model.attention_kernel: packed",
    "engine.quantization": "accepted, no effect; say model.weight_dtype instead",
    "speculative_config.acceptance_method": "accepted, no effect: gone from vLLM; say verification: {kind: typical}",
    "speculative_config.disable_by_batch_size": "accepted, no effect, as in vLLM V1; "
    "use num_speculative_tokens_per_batch_size",
}


@dataclass(slots=True)
class Pasted:
    """A scenario's data on its way through the steps below, with what there is to tell."""

    root: Node
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, path: Path, message: str) -> None:
        """Report a key that is accepted."""
        self.notes.append(str(problem_at(self.root, path, message, key=True)).splitlines()[0])

    def complain(self, path: Path, message: str, *, key: bool = False) -> None:
        """Report a key that is refused."""
        self.problems.append(problem_at(self.root, path, message, key=key))

    def drop(self, path: Path) -> None:
        """Take a key out."""
        self.root = self.root.without(path)

    def replace(self, path: Path, node: Node) -> None:
        """Put a node in the place of another."""
        parent = self.root.find(path[:-1])
        if parent is not None and isinstance(parent.value, dict):
            changed = parent.with_items({**parent.items, str(path[-1]): node})
            self.root = changed if len(path) == 1 else self._with(path[:-1], changed)

    def _with(self, path: Path, node: Node) -> Node:
        self.replace(path, node)
        return self.root


def translate(root: Node) -> Pasted:
    """Everything below, in order."""
    pasted = Pasted(root)
    _engine(pasted)
    for name in (root.child("arms") or Node(None)).items:
        _speculative_config(pasted, ("arms", name))
    return pasted


def _engine(pasted: Pasted) -> None:
    _snake_case(pasted)
    for key, node in (pasted.root.child("engine") or Node(None)).items.items():
        path: Path = ("engine", key)
        if key in ONLY_VALUE:
            if node.value is not None and node.value != ONLY_VALUE[key]:
                hint = f"; {INSTEAD[key]}" if key in INSTEAD else ""
                pasted.complain(path, f"found {found(node.value)}; only {found(ONLY_VALUE[key])} is simulated{hint}")
            pasted.drop(path)
        elif key == "speculative_config":
            pasted.complain(path, "belongs to an arm: arms.<name>.speculative_config", key=True)
            pasted.drop(path)
        elif key in EngineArgs.no_effect_keys:
            _no_effect(pasted, path)


def _snake_case(pasted: Pasted) -> None:
    """Config files and the command line of vLLM take `max-num-seqs` as well as `max_num_seqs`."""
    engine = pasted.root.child("engine")
    if engine is None or not isinstance(engine.value, dict):
        return
    items: dict[str, Node] = {}
    for key, node in engine.items.items():
        snake = key.replace("-", "_")
        if snake in items:
            pasted.complain(("engine", key), f"the same key as {snake}, which is given too", key=True)
        else:
            items[snake] = node
    pasted.replace(("engine",), engine.with_items(items))


def _no_effect(pasted: Pasted, path: Path) -> None:
    explained = _EXPLAINED.get(f"{path[-2]}.{path[-1]}", "accepted, no effect")
    pasted.note(path, explained)
    pasted.drop(path)


def _speculative_config(pasted: Pasted, arm: Path) -> None:
    path: Path = (*arm, "speculative_config")
    config = pasted.root.find(path)
    if config is not None and isinstance(config.value, str):
        config = _from_json(pasted, path, config)
    if config is None or not isinstance(config.value, dict):
        return
    config = _sglang_names(pasted, path, config)
    _infer_method(pasted, path, config)
    _trees(pasted, path)
    _verification(pasted, arm)
    _synthetic(pasted, arm)
    config = pasted.root.find(path) or config
    for key in config.items:
        if key in _no_effect_keys(config):
            _no_effect(pasted, (*path, key))


def _from_json(pasted: Pasted, path: Path, node: Node) -> Node | None:
    """`--speculative-config '{"method": ...}'` is JSON text on vLLM's command line."""
    try:
        inner, problems = read_yaml(str(node.value).encode(), "speculative_config")
    except ScenarioError as error:
        inner, problems = Node(None), list(error.problems)
    if problems or not isinstance(inner.value, dict):
        pasted.complain(path, "expected a mapping, or the JSON text of one")
        pasted.drop(path)
        return None
    config = from_plain(inner.plain(), node.mark)
    pasted.replace(path, Node(config.value, node.mark, node.key_mark))
    return pasted.root.find(path)


def _sglang_names(pasted: Pasted, path: Path, config: Node) -> Node:
    """SGLang's names of the method and the drafter become ours."""
    items = config.items
    if ALGORITHM in items:
        message = complaint({key: node.value for key, node in items.items()})
        if message:
            pasted.complain((*path, ALGORITHM), message)
        node = items[ALGORITHM]
        method = ALGORITHMS.get(str(node.value).upper(), "eagle3")  # one complaint is enough
        items = {"method": Node(method, node.mark, node.key_mark), **items}
    if DRAFTER in items:
        items = {"model": items[DRAFTER], **items}
    if not {ALGORITHM, DRAFTER} & items.keys():
        return config
    config = config.with_items({key: node for key, node in items.items() if key not in (ALGORITHM, DRAFTER)})
    pasted.replace(path, config)
    return config


def _infer_method(pasted: Pasted, path: Path, config: Node) -> None:
    """As vLLM does: from the drafter's name when `method` is missing; every `*_mtp` is `mtp`."""
    method, model = config.child("method"), config.child("model")
    if method is not None:
        if isinstance(method.value, str) and method.value.endswith("_mtp"):
            pasted.replace((*path, "method"), Node("mtp", method.mark, method.key_mark))
        return
    if model is None or not isinstance(model.value, str):
        return
    guess = method_of_drafter(model.value)
    pasted.note((*path, "model"), f"no method given: taken as {guess}, as vLLM does")
    pasted.replace((*path, "method"), Node(guess, model.mark, model.key_mark))


def _trees(pasted: Pasted, path: Path) -> None:
    """Token trees in the words of vLLM and SGLang, where the method can draft trees."""
    config = pasted.root.find(path) or Node(None)
    method = config.child("method")
    spec = SPECULATION.members().get(str(method.value)) if method else None
    if spec is None or "tree" not in spec.model_fields:
        return
    spelled = spelled_out(config.items)
    for key, message in spelled.problems:
        pasted.complain((*path, key), message, key=True)
    for key, message in spelled.notes:
        pasted.note((*path, key), message)
    pasted.replace(path, config.with_items(spelled.items))


def _no_effect_keys(config: Node) -> Collection[str]:
    method = config.child("method")
    spec = SPECULATION.members().get(str(method.value)) if method else None
    if spec is None:
        return ()
    return (SPECULATIVE_NO_EFFECT | spec.no_effect_keys) - spec.model_fields.keys()


def _verification(pasted: Pasted, arm: Path) -> None:
    """The keys of vLLM that choose a verification rule become the arm's."""
    path: Path = (*arm, "speculative_config")
    config = pasted.root.find(path)
    keys = (pasted_rules.METHOD, pasted_rules.DRAFTS)
    values = {key: config.items[key].value for key in keys if config is not None and key in config.items}
    if config is None or not values:
        return
    wrong = pasted_rules.complaints(values)
    for key, message in wrong.items():
        pasted.complain((*path, key), message)
    spec = SPECULATION.members().get(str(config.items["method"].value)) if "method" in config.items else None
    kind = None if wrong else pasted_rules.rule_of(values, spec is None or spec.drafts_have_probabilities)
    stated = pasted.root.find((*arm, "verification"))
    chosen = next(iter(values))
    if kind is not None and stated is None:
        node = config.items[chosen]
        rule = node.with_items({"kind": Node(kind, node.mark, node.key_mark)})
        pasted.replace((*arm, "verification"), rule)
    elif kind is not None and stated is not None and (stated.child("kind") or stated).value != kind:
        message = f"means {kind}, which contradicts {dotted((*arm, 'verification'))}; allowed: one of them"
        pasted.complain((*path, chosen), message, key=True)
    for key in values:
        message = pasted_rules.remark({**values, "acceptance": bool(set(_SYNTHETIC) & set(config.items))}, key, kind)
        if message:
            pasted.note((*path, key), message)
        pasted.drop((*path, key))


def _synthetic(pasted: Pasted, arm: Path) -> None:
    """The `rejection_sample_method: synthetic` of vLLM states the arm's acceptance."""
    path: Path = (*arm, "speculative_config")
    config = pasted.root.find(path)
    written = [key for key in _SYNTHETIC if config is not None and key in config.items]
    given = [key for key in written if config is not None and config.items[key].value is not None]
    if len(given) > 1:
        pasted.complain((*path, given[1]), f"contradicts {given[0]}; allowed: one of them", key=True)
    if given and config is not None:
        stated = pasted.root.find((*arm, "acceptance"))
        if stated is not None:
            message = f"contradicts {dotted((*arm, 'acceptance'))}; allowed: one of them"
            pasted.complain((*path, given[0]), message, key=True)
        else:
            pasted.replace((*arm, "acceptance"), _acceptance(given[0], config))
    for key in written:
        pasted.drop((*path, key))


def _acceptance(key: str, config: Node) -> Node:
    node = config.items[key]

    def same_place(value: str) -> Node:
        return Node(value, node.mark, node.key_mark)

    if key == "synthetic_acceptance_rates":
        return node.with_items({"kind": same_place("per_position"), "rates": node})
    items = {"kind": same_place("length"), "shape": same_place("min_variance"), "tokens_per_step": node}
    if (k := config.child("num_speculative_tokens")) is not None:
        items["num_speculative_tokens"] = k
    return node.with_items(items)
