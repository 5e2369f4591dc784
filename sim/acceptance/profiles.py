"""Fitted parameters shipped with the package: one YAML file `data/<model>-<profile>.yaml`, each with its source."""

import difflib
from functools import lru_cache
from importlib import resources
from typing import Any

import yaml


def profile_names(model: str) -> tuple[str, ...]:
    """Names of the shipped profiles of `model` (`regime` or `ngram`), sorted."""
    files = (entry.name for entry in resources.files("sim.acceptance").joinpath("data").iterdir())
    prefix, suffix = f"{model}-", ".yaml"
    return tuple(sorted(name[len(prefix) : -len(suffix)] for name in files if name.startswith(prefix)))


@lru_cache(maxsize=32)
def load_profile(model: str, name: str) -> dict[str, Any]:
    """`description`, `source` and `parameters` of a shipped profile.

    Raises:
        ValueError: there is no such profile; the message lists the names and the nearest spelling.
    """
    names = profile_names(model)
    if name not in names:
        near = difflib.get_close_matches(name.lower(), names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no {model} profile {name!r}; shipped: {', '.join(names)}{hint}")
    text = resources.files("sim.acceptance").joinpath(f"data/{model}-{name}.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded
