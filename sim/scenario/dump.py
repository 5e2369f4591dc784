"""A scenario written out in full, and its hash: the same question gives the same bytes however it was spelt."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import yaml

from sim.scenario.schema import Scenario
from sim.scenario.yaml_reader import resolve_plain

#: Not part of the question: they choose random numbers and name the output.
_NOT_HASHED = ("seed", "name")


class _Dumper(yaml.SafeDumper):
    """Quotes what our reader would not take as text, and never writes aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    try:
        style = None if resolve_plain(text) == text else "'"
    except ValueError:
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def plain_data(scenario: Scenario) -> dict[str, Any]:
    """Every field with its value, as dicts, lists and scalars, in the order of the schema."""
    return scenario.model_dump(mode="json")


def dump_scenario(scenario: Scenario) -> str:
    """Canonical YAML that loads back to an equal scenario."""
    return dump_data(plain_data(scenario))


def dump_data(data: Mapping[str, Any]) -> str:
    """YAML of plain data that our reader takes back as it is."""
    text: str = yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def scenario_hash(scenario: Scenario) -> str:
    """SHA-256 (hex) of the canonical JSON without seed, name and number of replicates."""
    data = {key: value for key, value in plain_data(scenario).items() if key not in _NOT_HASHED}
    data["sweep"] = {key: value for key, value in data["sweep"].items() if key != "replicates"}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
