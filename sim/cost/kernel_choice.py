"""Kernels other than those that a GPU's profile was fitted on."""

from dataclasses import replace

from sim.hardware.gpu import Gpu
from sim.hardware.profile import ChosenProfile, find_profile

#: Tensor-core rate of `mma.sync`, as a share of the peak, on GPUs whose peak needs newer instructions (`wgmma`):
#: 62.9 % on Hopper (arXiv 2402.13499). Blackwell was not measured; the same is taken.
_OLDER_INSTRUCTIONS = {"Hopper": 0.63, "Blackwell": 0.63}
#: The profile whose experts are Marlin's, on a GPU where `mma.sync` reaches the peak; rows of Marlin's smallest tile.
_MARLIN_PROFILE, _MARLIN_TILE = "l40s", 8


def packed_attention(chosen: ChosenProfile) -> ChosenProfile:
    """The same profile with packed kernels for several new tokens, at the launch and compute rates that it has.

    Itself where its kernels are packed already.
    """
    own = chosen.sections().extend_attention
    if own.kernel == "packed":
        return chosen
    section = own.model_copy(update={"kernel": "packed"})
    return replace(chosen, profile=chosen.profile.model_copy(update={"extend_attention": section}))


def marlin_experts(chosen: ChosenProfile, gpu: Gpu) -> ChosenProfile:
    """The same profile with Marlin's arithmetic for experts with small weights; itself where it has it.

    Marlin computes at the share of the peak that it reaches on an L40S, less where `mma.sync` does not reach the peak;
    it starts at tiles of 8 rows (`fused_marlin_moe.py`). Memory and launches are the profile's.
    """
    own = chosen.moe("weight_only")
    if "marlin" in (own.kernel or ""):
        return chosen
    measured = find_profile(_MARLIN_PROFILE).moe["weight_only"].compute_efficiency
    changes = {
        "kernel": "marlin",
        "compute_efficiency": measured * _OLDER_INSTRUCTIONS.get(gpu.arch, 1.0),
        "tile_rows": _MARLIN_TILE,
    }
    experts = {**chosen.profile.moe, "weight_only": own.model_copy(update=changes)}
    return replace(chosen, profile=chosen.profile.model_copy(update={"moe": experts}))
