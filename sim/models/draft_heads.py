"""Shapes of the networks that EAGLE, EAGLE-3 and multi-token prediction draft with, and of Medusa heads.

The former are one decoder layer of the target's. They read its input embedding, so they hold none, and their KV is one
layer of the target's shape. Medusa heads have no layers and no KV.
Sources: vLLM `llama_eagle.py`, `llama_eagle3.py`, `deepseek_mtp.py`, `medusa.py`; EAGLE-3, arXiv 2503.01840;
DeepSeek-V3, arXiv 2412.19437, section 2.2; Medusa, arXiv 2401.10774.
"""

from typing import Literal

from sim.errors import ScenarioError
from sim.models.model import Model

EagleKind = Literal["eagle", "eagle3"]

#: LM head rows of public EAGLE-3 heads (`draft_vocab_size` of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B and of SpecForge).
EAGLE3_DRAFT_VOCAB = 32_000


def eagle_head(target: Model, kind: EagleKind) -> Model:
    """The EAGLE or EAGLE-3 head of a target.

    EAGLE: `fc` maps embedding and target state (2 h) to h, then one decoder layer; the LM head is the target's,
    computed in every pass but held once. EAGLE-3: `fc` maps three target states (3 h) to h, attention reads embedding
    and state side by side (2 h), and the head has its own draft vocabulary.

    A mixture-of-experts target gets a dense MLP of the width of its dense layers, or 4 h where it has none: published
    heads are dense Llama layers whatever the target (SpecForge configurations). `fc` runs once per step for EAGLE-3; it
    is priced in every pass here.
    """
    width = target.ffn or 4 * target.hidden
    dense = {"layers": 1, "dense_layers": 1, "ffn": width, "experts": 0, "top_k": 0, "moe_ffn": 0}
    dense |= {"shared_experts": 0, "shared_ffn": 0}
    if kind == "eagle":
        return _head(target, kind, dense | {"has_lm_head": False, "fc_in": 2 * target.hidden})
    vocab = min(EAGLE3_DRAFT_VOCAB, target.vocab)
    return _head(target, kind, dense | {"vocab": vocab, "fc_in": 3 * target.hidden, "attention_in": 2 * target.hidden})


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
