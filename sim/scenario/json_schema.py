"""The JSON Schema of scenarios, for editors and for looking up which keys exist."""

import json
from functools import cache
from typing import Any

from sim.scenario.defaults import SHORTHANDS
from sim.scenario.schema import Scenario


@cache
def validation_schema() -> dict[str, Any]:
    """What validation accepts once shorthands are spelt out."""
    return Scenario.model_json_schema(mode="validation")


def scenario_json_schema() -> dict[str, Any]:
    """What a user may write: shorthands, dependent defaults and `extends` included."""
    schema: dict[str, Any] = json.loads(json.dumps(validation_schema()))
    properties = schema["properties"]
    for section in SHORTHANDS:
        properties[section] = {"anyOf": [{"type": "string"}, properties[section]]}
    properties["extends"] = {
        "type": "string",
        "description": "A local scenario file to start from, relative to this one.",
    }
    arms = properties["arms"]["patternProperties"]
    for pattern, arm in arms.items():
        arms[pattern] = {"anyOf": [arm, {"type": "null"}]}
    schema["required"] = ["hardware", "model", "arms"]
    workload = schema["$defs"].get("Workload", {})
    workload["required"] = [key for key in workload.get("required", ()) if key != "arrivals"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "specsim scenario", **schema}


def schema_text() -> str:
    """The schema as committed in `docs/scenario.schema.json`."""
    return json.dumps(scenario_json_schema(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
