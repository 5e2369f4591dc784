"""Shapes of the networks that draft for one target: EAGLE, EAGLE-3, multi-token prediction, DFlash, Medusa, its layers.

All but its first layers read the target's input embedding and hold none. Medusa heads have no layers and no KV.
Sources: vLLM `llama_eagle.py`, `llama_eagle3.py`, `deepseek_mtp.py`, `qwen3_dflash.py`, `medusa.py`; EAGLE-3,
arXiv 2503.01840; DeepSeek-V3, arXiv 2412.19437, section 2.2; DFlash, arXiv 2602.06036; LayerSkip, arXiv 2404.16710;
Medusa, arXiv 2401.10774.
"""

from typing import Literal

from sim.errors import ScenarioError
from sim.models.model import Model

EagleKind = Literal["eagle", "eagle3"]

#: LM head rows of public EAGLE-3 heads (`draft_vocab_size` of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B and of SpecForge).
EAGLE3_DRAFT_VOCAB = 32_000

NO_EXPERTS = {"experts": 0, "top_k": 0, "moe_ffn": 0, "shared_experts": 0, "shared_ffn": 0}


def eagle_head(target: Model, kind: EagleKind, layers: int = 1) -> Model:
    """The EAGLE or EAGLE-3 head of a target: `layers` decoder layers of its shape.

    EAGLE: `fc` maps embedding and target state (2 h) to h in every pass, then one decoder layer; the LM head is the
    target's, computed in every pass but held once. EAGLE-3: three target states (3 h) are mapped to h once for every
    token of the target's pass (vLLM `combine_hidden_states`), attention reads embedding and state side by side (2 h),
    and the head has its own draft vocabulary. Only the first of several layers
    (P-EAGLE) reads both.
    """
    if kind == "eagle":
        return _head(target, kind, _dense(target, layers) | {"has_lm_head": False, "fc_in": 2 * target.hidden})
    vocab = min(EAGLE3_DRAFT_VOCAB, target.vocab)
    wide = {"vocab": vocab, "states_in": 3 * target.hidden, "attention_in": 2 * target.hidden}
    return _head(target, kind, _dense(target, layers) | wide)


def dflash_head(target: Model, layers: int, target_states: int) -> Model:
    """A DFlash drafter: `layers` decoder layers that attend to keys and values made of the target's states.

    `fc` maps the states of `target_states` target layers to h once for every token of the target's pass, and every
    layer projects them to its keys and values (vLLM `precompute_and_store_context_kv`). Embedding and LM head are the
    target's. Some published heads attend to a window of 2,048 tokens in most layers; here all see the whole context.
    """
    states = {"has_lm_head": False, "states_in": target_states * target.hidden, "states_are_kv": True}
    return _head(target, "dflash", _dense(target, layers) | states)


def first_layers(target: Model, layers: int) -> Model:
    """The first `layers` layers of a target with its LM head: what LayerSkip drafts with.

    Raises:
        ScenarioError: the target has no more layers than that.
    """
    if layers >= target.layers:
        raise ScenarioError(f"exit_layer {layers}: allowed: below the {target.layers} layers of {target.name}")
    shape = {"name": f"{target.name}-first-{layers}", "layers": layers, "mtp_layers": 0, "hf_ids": ()}
    shape |= {"dense_layers": min(target.dense_layers, layers), "source": f"the first layers of {target.name}"}
    if layers <= target.dense_layers:
        shape |= NO_EXPERTS
    return Model.model_validate(target.model_dump() | shape)


def _dense(target: Model, layers: int) -> dict[str, int | bool]:
    """Dense layers, whatever the target: published heads have no experts (SpecForge, z-lab configurations).

    Their MLP has the width of the target's dense layers, or 4 h where it has none.
    """
    return {"layers": layers, "dense_layers": layers, "ffn": target.ffn or 4 * target.hidden, **NO_EXPERTS}


def mtp_head(target: Model) -> Model:
    """One multi-token-prediction module of a target: `eh_proj` (2 h to h), one full layer, the target's LM head.

    The layer has experts where the target's last layer has. Further modules (MiniMax-M2 has three) are not modelled:
    the first one drafts every token, as vLLM does for DeepSeek-V3.

    Raises:
        ScenarioError: the target was published without such a module.
    """
    if target.mtp_layers == 0:
        raise ScenarioError(
            f"{target.name} has no multi-token-prediction layers (mtp_layers is 0), so `mtp` cannot draft"
        )
    dense_layers = 0 if target.experts else 1
    return _head(
        target, "mtp", {"layers": 1, "dense_layers": dense_layers, "has_lm_head": False, "fc_in": 2 * target.hidden}
    )


def medusa_heads(target: Model, num_heads: int) -> Model:
    """Medusa heads on a target's last hidden state: per head a residual block (h to h) and an LM head of its own.

    All heads run in one pass, so their blocks and their vocabularies stand side by side. No layers, hence no KV.
    """
    shape = {"layers": 0, "dense_layers": 0, "ffn": 0, "experts": 0, "top_k": 0, "moe_ffn": 0, "shared_experts": 0}
    shape |= {"shared_ffn": 0, "vocab": num_heads * target.vocab, "has_lm_head": True}
    head = _head(target, f"medusa-{num_heads}", dict(shape))
    return head.model_copy(update={"extra_linear_parameters": num_heads * target.hidden**2})


def _head(target: Model, kind: str, changes: dict[str, int | bool]) -> Model:
    """The target's shape with `changes`, and without what no head has: window, embedding, an identity of its own.

    Heads of windowed targets attend to the whole context. They are published in 16 bits even for a quantised target;
    MTP modules have the target's format.
    """
    common = {
        "name": f"{target.name}-{kind}",
        "window": 0,
        "full_attn_every": 1,
        "tied_embeddings": False,
        "has_embedding": False,
        "weight_dtype": target.weight_dtype if kind == "mtp" else "bf16",
        "mtp_layers": 0,
        "extra_linear_parameters": 0,
        "hf_ids": (),
        "source": f"one layer of {target.name}; see sim/models/draft_heads.py",
    }
    return Model.model_validate(target.model_dump() | common | changes)
