"""Which keys a scenario may have at a place: looked up in the JSON Schema; the data choose among alternatives."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from sim.scenario.document import Path, dotted
from sim.scenario.json_schema import validation_schema

Schema = dict[str, Any]


def allowed_keys(data: Any, path: Path) -> list[str]:
    """Keys of the mapping at `path`, empty where any key may stand or none."""
    keys: dict[str, None] = {}
    for schema, _ in _at(data, path):
        keys.update(dict.fromkeys(schema.get("properties", ())))
    return list(keys)


def allowed_kinds(data: Any, path: Path, tag: str) -> list[str]:
    """Values of the tag (`kind` or `method`) that the alternatives at `path` are told apart by."""
    kinds: dict[str, None] = {}
    for schema, _ in _at(data, path):
        field = schema.get("properties", {}).get(tag, {})
        kinds.update(dict.fromkeys(field.get("enum", [field["const"]] if "const" in field else [])))
    return list(kinds)


def places_of(key: str, limit: int = 2) -> list[str]:
    """Dotted keys that end in `key`, as `arms.<name>.acceptance`; at most `limit`."""
    return [dotted(path) for path in _index().get(key, ())][:limit]


@cache
def _index() -> dict[str, list[Path]]:
    index: dict[str, list[Path]] = {}
    queue: list[tuple[Path, Schema]] = [((), validation_schema())]
    while queue:
        path, schema = queue.pop(0)
        for part in _alternatives(schema, None):
            for key, child in part.get("properties", {}).items():
                if (*path, key) not in index.setdefault(key, []):
                    index[key].append((*path, key))
                    queue.append(((*path, key), child))
            if len(path) < 4:
                queue += [((*path, "<name>"), child) for child in _of_any_name(part)]
    return index


def _at(data: Any, path: Path) -> list[tuple[Schema, Any]]:
    """Object schemas that may hold at `path`, with the data there."""
    places = [(schema, data) for schema in _alternatives(validation_schema(), data)]
    for step in path:
        data = _child(data, step)
        places = [
            (part, data)
            for schema, _ in places
            for child in _below(schema, step)
            for part in _alternatives(child, data)
        ]
    return places


def _child(data: Any, step: str | int) -> Any:
    try:
        return data[step]
    except (KeyError, IndexError, TypeError):
        return None


def _below(schema: Schema, step: str | int) -> Iterator[Schema]:
    if step in schema.get("properties", {}):
        yield schema["properties"][step]
    elif isinstance(step, int):
        yield from ([schema["items"]] if isinstance(schema.get("items"), dict) else [])
    else:
        yield from _of_any_name(schema)


def _of_any_name(schema: Schema) -> list[Schema]:
    """Schemas of the values of a mapping with free keys."""
    values = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    return [value for value in values if isinstance(value, dict)]


def _alternatives(schema: Schema, data: Any) -> Iterator[Schema]:
    """The schema without references and unions; a tag in the data picks its member."""
    if "$ref" in schema:
        schema = validation_schema()["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    mapping = schema.get("discriminator", {}).get("mapping", {})
    tag = data.get(schema["discriminator"]["propertyName"]) if mapping and isinstance(data, dict) else None
    if isinstance(tag, str) and tag in mapping:
        yield from _alternatives({"$ref": mapping[tag]}, data)
        return
    members = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if not members:
        yield schema
    for member in members:
        yield from _alternatives(member, data)
