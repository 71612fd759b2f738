"""The refusals of both worlds where a lock is put around a function."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from .errors import ConfigError


def shape_without(shape: inspect.Signature, lease_as: str) -> inspect.Signature:
    """Returns the parameters that are left for a caller, where the lock gives `lease_as` itself."""
    kept = [one for one in shape.parameters.values() if one.name != lease_as]
    given = shape.parameters.get(lease_as)
    if given is None or given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
        known = ", ".join(shape.parameters) or "none"
        raise ConfigError(
            f"lease_as={lease_as!r} names no parameter of the function; its parameters: {known}"
        )
    return shape.replace(parameters=kept)


_MANAGERS = {
    getattr(make, "__code__", None)
    for make in (contextmanager(lambda: iter(())), asynccontextmanager(aiter))
}
"""The code of functions that return what is entered later, and whose body runs only then."""


def unwrapped(function: object) -> object:
    """Returns the function that will be called; refuses what a lock cannot be put around."""
    if isinstance(function, staticmethod | classmethod | property):
        raise ConfigError(
            f"put the lock below @{type(function).__name__}, next to the function itself"
        )
    if not callable(function) or isinstance(function, type):
        raise ConfigError(f"a lock can be put around a function, not around {function!r:.80}")
    plain: object = function
    while isinstance(plain, partial):
        plain = plain.func
    if not (inspect.isroutine(plain) or inspect.ismethod(plain)):
        plain = type(plain).__call__
    if _is_generator(plain):
        raise ConfigError(
            f"{function!r:.80} is a generator: the lock would be released before its body runs; use "
            "`with` inside it"
        )
    if getattr(plain, "__code__", None) in _MANAGERS:
        raise ConfigError(
            f"{function!r:.80} is made of a generator, as @contextmanager does it: the lock would be "
            "released before its body runs; use `with` inside it"
        )
    return plain


def _is_generator(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
