"""Families: what may register, and kinds that other installed packages bring along."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from sim.spec import Family, Spec

PLUG_IN = '''
from typing import Literal
import numpy as np
from sim.acceptance.base import ACCEPTANCE, AcceptanceModel, Tape

@ACCEPTANCE.register
class Always(AcceptanceModel):
    """Every draft is accepted."""

    kind: Literal["always"] = "always"

    def tape(self, requests, max_draft_tokens, streams):
        return Tape(np.full(requests.num_positions, max_draft_tokens, np.uint8))

    def survival(self, max_draft_tokens):
        return np.ones(max_draft_tokens)
'''
SCENARIO = """
hardware: h100-sxm
model: llama-3.1-8b
cost_model: {kind: constant, target_ms: 10, draft_ms: 0}
arms:
  plain: {}
  k3: {speculative_config: {method: eagle3, num_speculative_tokens: 3}, acceptance: {kind: always}}
workload: {num_requests: 8, arrivals: {kind: closed, max_concurrency: 1}, output_tokens: {kind: fixed, value: 401}}
sweep: {replicates: 1}
"""


def install(folder: Path, module: str) -> dict[str, str]:
    """An installed distribution with one entry point, and the environment that sees it."""
    site = folder / "site"
    metadata = site / "strangers_kinds-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "strangers_kinds.py").write_text(module)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers-kinds\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[specsim.acceptance]\nalways = strangers_kinds\n")
    (folder / "mine.yaml").write_text(SCENARIO)
    return os.environ | {"PYTHONPATH": str(site)}


def specsim(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sim", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_kind_of_another_package_is_checked_described_and_run(tmp_path: Path) -> None:
    environment = install(tmp_path, PLUG_IN)
    checked = specsim(tmp_path, environment, "check", "mine.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert '"always"' in specsim(tmp_path, environment, "schema").stdout
    done = specsim(tmp_path, environment, "run", "mine.yaml", "-o", "out", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    (compare,) = tmp_path.glob("out/mine/*/compare.csv")
    row = next(line for line in compare.read_text().splitlines() if ",mean_tpot_ms," in line)
    assert row.split(",")[4:7] == ["2.5", "10.0", "4.0"]  # 400 tokens in 100 steps of 10 ms


def test_without_the_package_its_kind_is_unknown(tmp_path: Path) -> None:
    install(tmp_path, PLUG_IN)
    checked = specsim(tmp_path, dict(os.environ), "check", "mine.yaml")
    assert checked.returncode == 2
    assert "found 'always'; allowed: catalogue, distributions, " in checked.stdout


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        (PLUG_IN.replace('"always"', '"iid"'), "acceptance kind 'iid' is already sim.acceptance.iid.Iid"),
    ],
)
def test_a_broken_plug_in_is_named_without_a_traceback(tmp_path: Path, module: str, reason: str) -> None:
    checked = specsim(tmp_path, install(tmp_path, module), "check", "mine.yaml")
    assert checked.returncode == 2
    assert "plug-in always = strangers_kinds (specsim.acceptance): " in checked.stderr
    assert reason in checked.stderr
    assert "Traceback" not in checked.stderr


class One(Spec):
    kind: Literal["one", "uno"] = "one"


def test_a_tag_belongs_to_one_class() -> None:
    family: Family[Spec] = Family("test", "sim.kv_cache")
    assert family.register(One) is One
    assert family.register(One) is One
    assert dict(family.members()) == {"one": One, "uno": One}

    class Other(Spec):
        kind: Literal["uno"] = "uno"

    with pytest.raises(ValueError, match=r"kind 'uno' is already .*\.One"):
        family.register(Other)
