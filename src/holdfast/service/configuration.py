"""Where the settings of `holdfast serve` come from: its options, the environment, and a file of TOML.

An option counts more than a variable of the environment, and that more than the file. The file has the
names of `Settings`, with options of the store in a table of their own:

    url = "redis://redis.example:6379/0"
    namespaces = ["billing", "reports"]
    port = 7420
    longest_wait = 600

In the environment they are `HOLDFAST_SERVE_PORT` and so on; the namespaces have commas between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..errors import ConfigError
from .settings import Settings

PREFIX = "HOLDFAST_SERVE_"
TYPES: Mapping[str, type] = {
    field.name: {
        "int": int,
        "float": float,
        "bool": bool,
        "tuple[str, ...]": tuple,
        "dict[str, Any]": dict,
    }.get(str(field.type), str)
    for field in fields(Settings)
}
"""The settings, each with its type."""


def settings_of(
    given: Mapping[str, Any], environment: Mapping[str, str], file: Mapping[str, Any]
) -> Settings:
    """Returns the settings; `given` are those that were said on the command line."""
    values: dict[str, Any] = {}
    for name, value in file.items():
        if name not in TYPES:
            known = ", ".join(TYPES)
            raise ConfigError(
                f"the configuration has an unknown key {name!r:.40}; there are: {known}"
            )
        values[name] = _checked(name, value)
    for name, kind in TYPES.items():
        text = environment.get(PREFIX + name.upper())
        if text and kind is not dict:
            values[name] = _from_text(name, kind, text)
    if "url" not in values and environment.get("HOLDFAST_URL"):
        values["url"] = environment["HOLDFAST_URL"]
    for name, value in given.items():
        is_text = isinstance(value, str)
        values[name] = _from_text(name, TYPES[name], value) if is_text else value
    return Settings(**values)


def _checked(name: str, value: Any) -> Any:
    """Returns a value of the file, if it is of the right type."""
    kind = TYPES[name]
    if kind is tuple and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        wanted = {int: "a whole number", float: "a number", str: "a text", tuple: "a list of texts"}
        raise ConfigError(f"{name} in the configuration must be {wanted.get(kind, kind.__name__)}")
    return value


def _from_text(name: str, kind: type, text: str) -> Any:
    """Returns a setting that was given as a text."""
    if kind is tuple:
        return tuple(part for part in text.split(",") if part)
    if kind is bool:
        if text.lower() in ("1", "true", "yes"):
            return True
        if text.lower() in ("0", "false", "no"):
            return False
        raise ConfigError(f"{name} must be true or false, not {text!r:.40}")
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{name} must be {wanted}, not {text!r:.40}") from None
