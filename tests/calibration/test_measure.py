import csv
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sim.calibration.calibrate import Request, calibrate
from sim.calibration.measure.plan import (
    BATCHES,
    CONTEXTS,
    DRAFTS,
    NEW_TOKENS,
    TOKENS,
    AttentionCase,
    GemmCase,
    Limits,
    StepCase,
    make_plan,
)
from sim.calibration.measure.run import MeasureRequest, identify, measure
from sim.calibration.measure.torch_device import TorchDevice, sdpa_attention
from sim.cli import run_command
from sim.cost.attention import AttentionFits, bind_attention
from sim.cost.base import NO_ATTENTION, AttentionLoad
from sim.cost.formats import resolve_format
from sim.cost.gemm import bind_gemm
from sim.cost.passes import verify_pass
from sim.cost.stack import RooflineCost, Stack
from sim.errors import CalibrationError
from sim.hardware.catalogue import find_gpu
from sim.hardware.profile import choose_profile
from sim.models.catalogue import find_model
from sim.models.model import Model
from sim.models.shapes import LinearShape

H100 = find_gpu("h100-sxm")
LIMITS = Limits(H100.memory, H100.l2)
LLAMA = find_model("llama-3.1-8b", Path())


class FakeDevice:
    """Answers with the cost model of another GPU's profile: what is measured must come out again."""

    name, sms, limits = "NVIDIA H100 80GB HBM3", 132, LIMITS
    stack, attention_kernel = "torch-fake/cuda-0", "fake_attention"

    def __init__(self, profile: str = "a100-sxm-80gb") -> None:
        self.chosen = choose_profile(H100, profile)

    def time_gemm(self, case: GemmCase) -> float | None:
        fit = self.chosen.linear("bf16")[0]
        rate = bind_gemm(LinearShape("x", case.n, case.k, 1), resolve_format("bf16", H100), fit, H100.memory_bandwidth)
        return None if case.m == 8192 else 1e6 * rate.terms(case.m).seconds

    def time_attention(self, case: AttentionCase) -> float | None:
        sections = self.chosen.sections()
        fits = AttentionFits(self.chosen.decode_attention("bf16"), sections.extend_attention, sections.mla)
        one = LLAMA.model_copy(update={"layers": 1, "dense_layers": 1})
        cached, new = case.context - case.q_len, case.q_len
        pairs = case.batch * (new * cached + new * (new + 1) // 2)
        load = AttentionLoad(case.batch, case.batch * new, case.batch * case.context, pairs)
        loads = (load, NO_ATTENTION) if new == 1 else (NO_ATTENTION, load)
        return 1e6 * bind_attention(one, 1, "bf16", H100, fits)[0].terms(*loads).seconds

    def time_step(self, model: Model, case: StepCase) -> float | None:
        cost = RooflineCost(Stack(H100, self.chosen, 1, "bf16", "bf16").bind(model))
        return 1e6 * cost.price(verify_pass(case.batch, case.context, case.num_draft_tokens)).seconds


def test_the_plan_covers_what_it_should() -> None:
    plan = make_plan(LLAMA, LIMITS, quick=False)
    assert {case.m for case in plan.gemms} == set(TOKENS)
    assert {TOKENS[0], TOKENS[-1]} == {1, 8192}
    assert {(case.n, case.k) for case in plan.gemms} == {
        (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096),
    }  # fmt: skip
    assert {case.q_len for case in plan.attention} == set(NEW_TOKENS)
    assert {case.batch for case in plan.attention} == set(BATCHES)
    assert {case.context for case in plan.attention} == set(CONTEXTS)
    assert {case.num_draft_tokens for case in plan.steps} == set(DRAFTS) == set(range(8))
    assert len(make_plan(LLAMA, LIMITS, quick=True).attention) < len(plan.attention) / 4


@pytest.mark.parametrize("memory", [2**30, 16 * 2**30, H100.memory])
def test_no_case_exceeds_the_memory_and_buffers_spill_the_cache(memory: int) -> None:
    plan = make_plan(LLAMA, Limits(memory, H100.l2), quick=False)
    for gemm in plan.gemms:
        weights = 2 * gemm.n * gemm.k * gemm.copies
        assert 4 * H100.l2 <= weights <= 0.6 * memory
    for case in plan.attention:
        kv = 4 * case.batch * case.context * case.kv_heads * case.head_dim * case.copies
        assert 4 * H100.l2 <= kv <= 0.6 * memory
    assert bool(plan.steps) is (0.9 * memory > LLAMA.weight_bytes())


def test_models_without_a_kernel_here_are_told() -> None:
    deepseek = make_plan(find_model("deepseek-v3", Path()), LIMITS, quick=True)
    assert not deepseek.attention
    assert not deepseek.steps
    assert len(deepseek.left_out) == 2


def test_measured_tables_calibrate_to_the_profile_that_made_them(tmp_path: Path) -> None:
    request = MeasureRequest(None, "llama-3.1-8b", tmp_path / "out.csv", quick=False)
    device, said = FakeDevice(), list[str]()
    written = list(measure(device, identify(device), LLAMA, request, said.append))
    names = [path.name for path, _ in written]
    assert names == ["out-gemm.csv", "out-attention_decode.csv", "out-attention_verify.csv", "out-step.csv"]
    for path, rows in written:
        with path.open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert len(lines) == rows
        assert {line["stack"] for line in lines} == {"torch-fake/cuda-0"}
    assert ",8192,6144," not in written[0][0].read_text()  # these ran out of memory
    found = calibrate(Request(tuple(path for path, _ in written), "h100-sxm"))
    truth = device.chosen.linear("bf16")[0]
    fitted = found.profile.linear["bf16"]
    assert fitted.memory_efficiency == pytest.approx(truth.memory_efficiency, rel=0.02)
    assert fitted.compute_efficiency == pytest.approx(truth.compute_efficiency, rel=0.02)
    decode = found.profile.decode_attention["bf16"]
    assert decode.kv_efficiency == pytest.approx(device.chosen.decode_attention("bf16").kv_efficiency, rel=0.02)
    extend = found.profile.extend_attention
    assert extend is not None
    assert extend.kernel == "fa2"
    assert {
        one.group.key: one.held_out is not None and one.held_out.mape < 2.0 for one in found.fitted
    } == dict.fromkeys(("linear.bf16", "decode_attention.bf16", "extend_attention", "steps"), True)


def test_a_device_is_found_in_the_catalogue_or_asked_for() -> None:
    device = FakeDevice()
    assert identify(device).name == "H100-SXM"
    device.name = "NVIDIA GeForce GTX 1060"
    with pytest.raises(CalibrationError, match="Add --gpu"):
        identify(device)


def test_without_torch_or_cuda_the_command_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run_command(["calibrate", "--measure"]) == 2
    assert "--measure needs PyTorch" in capsys.readouterr().err
    without_cuda = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False), __version__="2.0")
    monkeypatch.setitem(sys.modules, "torch", without_cuda)
    assert run_command(["calibrate", "--measure"]) == 2
    assert "needs a CUDA device; PyTorch 2.0 finds none here" in capsys.readouterr().err


def test_the_torch_code_runs_on_cpu_tensors_and_masks_as_verification_needs() -> None:
    """Where PyTorch is installed (it is no dependency): the calls are right, whatever their speed."""
    torch = pytest.importorskip("torch")
    tiny = Model(
        name="tiny", layers=2, hidden=64, q_heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=100, dense_layers=2,
        source="test",
    )  # fmt: skip
    device = TorchDevice(torch, "cpu")
    times = [device.time_gemm(GemmCase(4, 64, 32, 3)), device.time_attention(AttentionCase(2, 4, 64, 4, 2, 16, 2))]
    times += [device.time_step(tiny, StepCase(2, 16, drafts)) for drafts in (0, 3)]
    assert all(time is not None and time > 0 for time in times)
    q, k, v = torch.randn(2, 4, 4, 16), torch.randn(2, 9, 2, 16), torch.randn(2, 9, 2, 16)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k.repeat_interleave(2, dim=2)) / 4.0
    visible = torch.ones(4, 9).tril(5).bool()
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    expected = torch.einsum("bhqk,bkhd->bqhd", weights, v.repeat_interleave(2, dim=2))
    assert torch.allclose(sdpa_attention(torch)(q, k, v), expected, atol=1e-5)
