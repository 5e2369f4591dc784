"""GPUs predicted from others: what is left out stays out, and a law that all GPUs share is found again."""

import numpy as np
import pytest

from sim.calibration.linear import GEMM
from sim.calibration.operators import Rows
from sim.calibration.tables import Table
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import GemmFit
from sim.validation.physics import Comparison, Report
from sim.validation.transfer import JointProfiles, joint_profile, transfers

TRUTH = GemmFit(
    source="made up", memory_efficiency=0.7, compute_efficiency=0.6, smoothness=2.0, launch_us=4.0,
    per_1000_inputs_us=0.1, fill_inputs=100.0,
)  # fmt: skip


def comparison(gpu_name: str, fit: GemmFit = TRUTH) -> Comparison:
    """A table of matrix products that follow `fit` exactly."""
    gpu = find_gpu(gpu_name)
    m, n, k = (axis.ravel() for axis in np.meshgrid([1, 16, 128, 1024, 8192], [2048, 8192], [2048, 16384]))
    columns = {"m": m, "n": n, "k": k, "dtype": np.full(m.size, "bfloat16"), "time_us": np.ones(m.size)}
    blank = Rows(gpu, Table("gemm", {name: values.astype(str) for name, values in columns.items()}))
    columns["time_us"] = GEMM.price_us(blank, fit)
    rows = Rows(gpu, Table("gemm", {name: values.astype(str) for name, values in columns.items()}))
    return Comparison("GEMM", gpu.name, "bfloat16", m.size, rows, None, None, None, None, None, (), "", True)


def report(*comparisons: Comparison) -> Report:
    return Report(list(comparisons), [])


def test_a_law_that_all_gpus_share_predicts_a_gpu_that_was_left_out(tmp_path):
    made = report(*map(comparison, ("a100-sxm-80gb", "h100-sxm", "l40s")))
    found = transfers(made, tmp_path)
    assert [own.gpu for own in found] == ["A100-SXM-80GB", "H100-SXM", "L40S"]
    for own in found:
        assert own.left_out is not None
        assert own.left_out.mape < 2.0 < own.default.mape


def test_the_gpu_itself_and_its_architecture_stay_out(tmp_path):
    odd = TRUTH.model_copy(update={"memory_efficiency": 0.35, "launch_us": 8.0})
    made = report(comparison("h100-sxm", odd), comparison("h200-sxm", odd), comparison("a100-sxm-80gb"))
    joint = JointProfiles(made)
    for name in ("h100-sxm", "h200-sxm"):
        section = joint.without(find_gpu(name)).profile.linear["bf16"]
        assert section.memory_efficiency == pytest.approx(0.7, rel=0.02)
    alone = transfers(report(comparison("h100-sxm"), comparison("h200-sxm")), tmp_path)
    assert all(own.left_out is None for own in alone)


def test_every_gpu_has_the_same_weight():
    """One GPU's table three times over pulls the joint fit no further than once."""
    other = TRUTH.model_copy(update={"memory_efficiency": 0.5, "launch_us": 4.0})
    once = [comparison("a100-sxm-80gb"), comparison("h100-sxm", other)]
    twice = [*once, comparison("h100-sxm", other), comparison("h100-sxm", other)]
    fits = [joint_profile(JointProfiles(report(*rows)).parts).profile.linear["bf16"] for rows in (once, twice)]
    assert fits[0].memory_efficiency == pytest.approx(fits[1].memory_efficiency, rel=0.01)
