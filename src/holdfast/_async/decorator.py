"""Locks around functions: each call has a lease of its own, and holds it until it has returned."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .._runtime.aio import check_function

if TYPE_CHECKING:
    from .entering import Enterable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def hold_during(
    thing: Enterable[Any], function: Callable[Parameters, Coroutine[Any, Any, Result]]
) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """Returns `function`, each call of which enters `thing` first."""
    check_function(function)

    @wraps(function)
    async def held(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        async with thing:
            return await function(*args, **kwargs)

    return held


class Decorator:
    """Made by `locks.locked(template)`: puts the lock that the arguments name around a function."""

    __slots__ = ("_make", "_text")

    def __init__(self, text: str, make: Callable[[str], Enterable[Any]]) -> None:
        self._text = text
        self._make = make

    def __call__(
        self, function: Callable[Parameters, Coroutine[Any, Any, Result]]
    ) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
        from inspect import signature  # slow to import, and seldom needed

        from ..name_template import NameTemplate, arguments_of

        check_function(function)
        shape = signature(function)
        template = NameTemplate(self._text, shape)
        make = self._make

        @wraps(function)
        async def held(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            name = template.fill(arguments_of(shape, args, kwargs))
            async with make(name):
                return await function(*args, **kwargs)

        return held


class LeaseDecorator:
    """Made by `locks.locked(template, lease_as=…)`: gives the function its lease, too.

    Type checkers cannot be told that one parameter is not the caller's, so they check none of them.
    """

    __slots__ = ("_lease_as", "_make", "_text")

    def __init__(self, text: str, make: Callable[[str], Enterable[Any]], lease_as: str) -> None:
        self._text = text
        self._make = make
        self._lease_as = lease_as

    def __call__(
        self, function: Callable[..., Coroutine[Any, Any, Result]]
    ) -> Callable[..., Coroutine[Any, Any, Result]]:
        from inspect import BoundArguments, signature

        from ..decorated import shape_without
        from ..name_template import NameTemplate, arguments_of

        check_function(function)
        whole = signature(function)
        lease_as = self._lease_as
        shape = shape_without(whole, lease_as)
        template = NameTemplate(self._text, shape)
        make = self._make

        @wraps(function)
        async def held(*args: Any, **kwargs: Any) -> Result:
            if lease_as in kwargs:
                raise TypeError(f"{lease_as!r} is given by the lock; leave it out of the call")
            given = shape.bind(*args, **kwargs).arguments
            name = template.fill(arguments_of(shape, args, kwargs))
            async with make(name) as lease:
                # Wherever the parameter stands, and whatever its kind.
                every = BoundArguments(whole, {**given, lease_as: lease})
                return await function(*every.args, **every.kwargs)

        held.__signature__ = shape  # type: ignore[attr-defined]
        return held
