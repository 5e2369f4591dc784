"""What a pass multiplies: the weight matrices and the routed experts of one GPU, without their values."""

from typing import NamedTuple


class LinearShape(NamedTuple):
    """One weight matrix as one GPU holds it: `layers` products of [tokens, k_in] by [k_in, n_out] in a pass.

    Attributes:
        name: qkv, o, gate_up, down, q, q_a, q_b, kv, kv_a, kv_b, router, shared_gate_up, shared_down, fc, extra or
            lm_head.
        n_out: outputs per GPU.
        k_in: inputs per GPU.
        layers: how many layers have it.
    """

    name: str
    n_out: int
    k_in: int
    layers: int

    @property
    def parameters(self) -> int:
        """Weights of these matrices in all layers, on one GPU."""
        return self.n_out * self.k_in * self.layers


class ExpertShape(NamedTuple):
    """The routed experts as one GPU holds them: a slice of every expert (tensor parallel), or some experts whole.

    Attributes:
        layers: layers with routed experts.
        experts, top_k: experts per layer, and how many of them one token uses.
        hidden: width of the residual stream.
        width: intermediate width of one expert on one GPU.
        held: experts per layer that one GPU holds at least a slice of.
    """

    layers: int
    experts: int
    top_k: int
    hidden: int
    width: int
    held: int

    @property
    def parameters_per_expert(self) -> int:
        """Weights of one expert on one GPU: gate, up and down."""
        return 3 * self.hidden * self.width
