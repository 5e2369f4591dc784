"""Laws across speculation methods, on the shipped scenarios: leaping is stepping, classes keep their own acceptance."""

import numpy as np
import pytest

from sim.rng import Streams
from sim.scenario.build import draw_tape, simulate
from sim.scenario.files import shipped_names
from sim.scenario.load import load_mapping, load_scenario

NAMES = [name for name in shipped_names() if name.startswith("methods/") and name != "methods/compare"]


@pytest.mark.parametrize("name", NAMES)
def test_leaping_over_steps_changes_no_byte(name: str) -> None:
    sizes = ["workload.num_requests=16", "workload.arrivals.max_concurrency=12"]
    loaded = load_scenario(name, overrides=sizes)
    arm = next(arm for arm, spec in loaded.scenario.arms.items() if spec.speculates)
    leapt, stepped = (simulate(loaded.scenario, arm, 0, loaded.base_dir, leap=leap) for leap in (True, False))
    assert leapt.steps.duration_ns.tobytes() == stepped.steps.duration_ns.tobytes()
    assert leapt.requests.finish_ns.tobytes() == stepped.requests.finish_ns.tobytes()
    assert leapt.accepted.tobytes() == stepped.accepted.tobytes()


def test_traffic_classes_mix_acceptance_by_k_with_a_chain() -> None:
    loaded = load_mapping(
        {
            "hardware": "h100-sxm",
            "model": "llama-3.1-8b",
            "arms": {
                "plain": {},
                "it": {
                    "speculative_config": {"method": "dflash", "num_speculative_tokens": 8},
                    "acceptance": {"kind": "table_by_k", "tokens_per_step": {3: 3.0, 8: 2.5}},
                    "class_acceptance": {"easy": {"kind": "iid", "rate": 1.0}},
                },
            },
            "workload": {
                "num_requests": 40,
                "prompt_tokens": {"kind": "fixed", "value": 50},
                "output_tokens": {"kind": "fixed", "value": 100},
                "classes": [{"name": "easy", "share": 0.5}, {"name": "hard", "share": 0.5}],
            },
        }
    )
    streams = Streams(loaded.scenario.seed, 0)
    requests = loaded.scenario.workload.requests(streams, loaded.base_dir)
    tape = draw_tape(loaded.scenario.arms["it"], requests, streams)
    easy = np.repeat(requests.class_id == 0, requests.output_tokens)
    for k, mean in ((3, 3.0), (8, 2.5)):
        assert (tape.at(k)[easy] == k).all()
        steps_of_hard = 1 + tape.at(k)[~easy].astype(float)  # by position: near the mean per step for one rate
        assert steps_of_hard.mean() == pytest.approx(mean, abs=0.25)
