"""Names of locks that are made from the arguments of a call: `report:{customer_id}`.

A field is the name of a parameter and nothing else. No attribute, index or conversion can be asked of
an argument, and only such values are taken whose text is the same in every process.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from enum import Enum
from inspect import Parameter, Signature
from string import Formatter
from uuid import UUID

from .errors import ConfigError

PLAIN = (str, int, UUID, date, time)
"""The types of arguments whose text is the same in every process. A `datetime` is a `date`."""


class NameTemplate:
    """A template, checked against the parameters of the function that it is for."""

    __slots__ = ("_pieces", "text")

    def __init__(self, text: str, signature: Signature) -> None:
        self.text = text
        self._pieces = _pieces_of(text)
        for _, field in self._pieces:
            if field is not None:
                _check_field(text, field, signature)

    @property
    def fields(self) -> list[str]:
        """The names of its fields."""
        return [field for _, field in self._pieces if field is not None]

    def fill(self, arguments: Mapping[str, object]) -> str:
        """Returns the lock's name for these arguments."""
        name = ""
        for literal, field in self._pieces:
            name += literal
            if field is not None:
                name += self._text_of(field, arguments)
        return name

    def _text_of(self, field: str, arguments: Mapping[str, object]) -> str:
        if field not in arguments:
            raise ConfigError(
                f"the lock's name {self.text!r} needs the argument {field!r}, which was not given"
            )
        value = arguments[field]
        if isinstance(value, PLAIN) and not isinstance(value, Enum):
            return str(value)
        raise ConfigError(
            f"the lock's name {self.text!r} cannot be made from {field}={value!r:.80}: the text of a "
            f"{type(value).__name__} may be another one in another process; give a str, an int, a "
            "UUID, a date or a time"
        )


def _pieces_of(text: str) -> list[tuple[str, str | None]]:
    """Returns the literal texts of the template, each with the field behind it."""
    pieces: list[tuple[str, str | None]] = []
    try:
        for literal, field, spec, conversion in Formatter().parse(text):
            if field is not None and not field.isidentifier():
                raise ValueError(
                    f"{{{field}}} is not the name of a parameter (attributes, indexes and numbers are "
                    "not taken)"
                )
            if spec or conversion:
                raise ValueError(f"{{{field}}} has a conversion or a format")
            pieces.append((literal, field))
    except ValueError as error:
        raise ConfigError(f"the template {text!r} cannot be used: {error}") from None
    return pieces


def _check_field(text: str, field: str, signature: Signature) -> None:
    parameter = signature.parameters.get(field)
    if parameter is None:
        if any(one.kind is Parameter.VAR_KEYWORD for one in signature.parameters.values()):
            return  # it may be among those
        known = ", ".join(signature.parameters) or "none"
        raise ConfigError(
            f"the template {text!r} names {field!r}, which is no parameter of the function; its "
            f"parameters: {known}"
        )
    if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        raise ConfigError(
            f"the template {text!r} names {field!r}, which stands for any number of arguments"
        )


def arguments_of(
    signature: Signature, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """Returns the arguments of a call by name, defaults included."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            for key, value in dict(arguments.pop(name)).items():
                arguments.setdefault(key, value)
    return arguments
