"""The GPU catalogue: complete, sourced, equal to the shared table, found by the names people type."""

import csv
import re

import pytest

from sim.catalogue import normalised
from sim.errors import ScenarioError
from sim.hardware.catalogue import find_gpu, gpu_ids


@pytest.mark.parametrize("gpu_id", gpu_ids())
def test_every_entry_loads_under_its_name_and_says_where_it_is_from(gpu_id):
    gpu = find_gpu(gpu_id)
    assert normalised(gpu.name) == normalised(gpu_id)
    assert gpu.source
    assert "memory:" in gpu.notes
    assert gpu.bf16 > 0
    assert gpu.fp8 in (0, pytest.approx(2 * gpu.bf16, rel=0.02))


def test_equal_to_the_shared_table(shared_data):
    with (shared_data / "gpu_specs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) + 3 == len(gpu_ids())  # RTX 3090, RTX A6000 and H20 are not in it
    for row in rows:
        gpu = find_gpu(row["gpu"])
        assert gpu.sms == int(row["sms"])
        for dtype, column in {
            "bf16": "bf16_tflops",
            "fp8": "fp8_tflops",
            "fp4": "fp4_tflops",
            "int8": "int8_tops",
        }.items():
            assert getattr(gpu, dtype) == pytest.approx(float(row[column]) * 1e12, rel=1e-12)
        assert gpu.memory_bandwidth == float(row["mem_bw_gbs"]) * 1e9
        assert gpu.link_bandwidth == float(row["link_gbs_per_dir"]) * 1e9
        assert gpu.pcie_bandwidth == float(row["pcie_gbs_per_dir"]) * 1e9
        assert gpu.l2 == int(row["l2_mb"]) * 10**6
        assert gpu.tdp_w == float(row["tdp_w"])
        assert gpu.source == row["source"]
        doubtful = re.search("recalled|uncertain|conflict|from memory", (row["source"] + row["notes"]).lower())
        assert gpu.certain is (doubtful is None)
        # what a runtime reports lies between 24 GB read as decimal, less 2 %, and as binary
        datasheet = float(row["mem_gb"])
        assert 0.98 * datasheet * 10**9 <= gpu.memory <= datasheet * 2**30


@pytest.mark.parametrize("spelling", ["h100-sxm", "H100_SXM", "H100 SXM", "h100sxm"])
def test_spelling_does_not_matter(spelling):
    assert find_gpu(spelling).name == "H100-SXM"


@pytest.mark.parametrize(
    ("short", "name"), [("h200", "H200-SXM"), ("b200", "B200-SXM"), ("rtx pro 6000", "RTX-PRO-6000-SE")]
)
def test_the_beginning_is_enough_when_it_is_unambiguous(short, name):
    assert find_gpu(short).name == name


def test_ambiguous_names_list_the_candidates():
    with pytest.raises(ScenarioError, match=r"ambiguous.*h100-pcie, h100-sxm"):
        find_gpu("h100")


@pytest.mark.parametrize(("typo", "near"), [("h200_smx", "h200-sxm"), ("rtx4080", "rtx-4090"), ("mi300", "mi300x")])
def test_unknown_names_suggest_the_nearest(typo, near):
    with pytest.raises(ScenarioError, match=f"did you mean.*{near}"):
        find_gpu(typo)


def test_unknown_names_without_a_neighbour_list_everything():
    with pytest.raises(ScenarioError, match=r"known: a100-pcie-80gb, .*rtx-pro-6000-se"):
        find_gpu("zzz")
