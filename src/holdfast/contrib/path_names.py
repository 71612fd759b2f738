"""The name of a lock, made from the path of a request, as FastAPI and Starlette read it.

One thing has to have one name. So a field of the template takes the value that the endpoint gets, and
not the text of the path: `/invoices/7` and `/invoices/07` are one `number: int`, whose texts would be
two locks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from starlette.requests import HTTPConnection

from .. import ConfigError
from ..name_template import NameTemplate

ONE_TEXT = (str, int, bool, UUID, date)
"""The types of which equal values have equal texts."""
SEVERAL_TEXTS = (float, Decimal, datetime, time, timedelta, bytes)
"""Types of which equal values can have different texts, or whose text no name is made of."""
ANY = inspect.signature(lambda **path_parameters: None)
"""The parameters of a path, which are known only when it is matched."""
MARK = "__holdfast_fields__"
"""The attribute of a dependency that has the fields of its template."""


def template_of(text: object) -> NameTemplate:
    if not isinstance(text, str):
        raise ConfigError(
            f'a lock needs a name, as in lock("invoice:{{number}}"), or a function, not {text!r:.80}'
        )
    return NameTemplate(text, ANY)


def name_for(connection: HTTPConnection, text: str) -> str:
    """Returns the lock's name for the path of this request."""
    template = template_of(text)
    known = dict(connection.path_params)
    for field in template.fields:
        if field in known:
            known[field] = _value(connection, field, known[field])
    return template.fill(known)


def is_known(connection: HTTPConnection) -> bool:
    """Tells whether FastAPI says which parameters the endpoint of this request has."""
    return bool(_trees_of(connection))


def refuse_ambiguous(app: Any) -> None:
    """Refuses locks of the application's routes whose names could not be made at any request.

    What a declaration does not tell is looked at when a request comes.
    """
    overrides = getattr(app, "dependency_overrides", {})
    for path, trees in _routes(getattr(app, "routes", [])):
        parts = list(_parts(trees, overrides))
        fields = {field for part in parts for field in getattr(part.call, MARK, ())}
        for field in sorted(fields):
            declared = [_declared(reader) for reader in _readers(parts, field)]
            _refuse(f"{field!r} in the path {path!r}", {kind for kind in declared if kind})


def _value(connection: HTTPConnection, field: str, found: object) -> object:
    """Returns the value of a part of the path, as the endpoint and its dependencies get it."""
    overrides = getattr(connection.scope.get("app"), "dependency_overrides", {})
    parts = list(_parts(_trees_of(connection), overrides))
    values = [_converted(connection, reader, field, found) for reader in _readers(parts, field)]
    if not values:
        return found  # nobody but Starlette has converted it
    _refuse(f"{field!r} in the path", {type(value) for value in values})
    one = values[0]
    if any(value != one for value in values):
        raise ConfigError(
            f"{field!r} in the path is {_shown(values)} to different parameters of one endpoint, and "
            "so several locks; declare it alike everywhere, or give lock() a function that returns "
            "the name"
        )
    return one


def _refuse(what: str, kinds: set[type]) -> None:
    """Refuses types by which one value could have two names."""
    if len(kinds) > 1:
        raise ConfigError(
            f"{what} is read {_listed(kinds)}: two paths could mean the same to the one, and be two "
            "locks for the other; declare it alike everywhere, or give lock() a function that returns "
            "the name"
        )
    if kinds and not kinds <= set(ONE_TEXT):
        raise ConfigError(
            f"{what} is read {_listed(kinds)}, of which one value can have several texts, and so "
            "several locks; give lock() a function that returns the name"
        )


def _readers(parts: list[Any], field: str) -> list[Any]:
    """Returns the parameters, of an endpoint and of all its dependencies, that are this field."""
    return [
        one
        for part in parts
        for one in part.path_params
        if (getattr(one, "validation_alias", None) or one.alias) == field
    ]


def _parts(trees: list[Any], overrides: Mapping[Any, Callable[..., Any]]) -> Iterator[Any]:
    """Yields an endpoint and all its dependencies: those that are run, if others are overridden."""
    left = list(trees)
    while left:
        tree = left.pop()
        yield tree
        left += [_instead(one, overrides) for one in tree.dependencies]


def _instead(tree: Any, overrides: Mapping[Any, Callable[..., Any]]) -> Any:
    """Returns the tree of a dependency; or of the one that is run in its place."""
    call = overrides.get(tree.call) if overrides else None
    if call is None:
        return tree
    from fastapi.dependencies.utils import get_dependant

    return get_dependant(path=tree.path, call=call)


def _trees_of(connection: HTTPConnection) -> list[Any]:
    """Returns the trees of dependencies that FastAPI has for the endpoint; Starlette has none.

    A route that is included with a router has two: its own, and that with the router's.
    """
    inner = connection.scope.get("fastapi")
    context = inner.get("effective_route_context") if isinstance(inner, dict) else None
    return _trees(connection.scope.get("route"), context)


def _trees(*places: Any) -> list[Any]:
    """Returns the trees of these routes and contexts, as far as they have one."""
    trees = [
        getattr(getattr(one, "starlette_route", None) or one, "dependant", None) for one in places
    ]
    return [tree for tree in trees if tree is not None]


def _routes(routes: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yields the path of each route, with its trees."""
    for route in routes:
        if hasattr(route, "effective_route_contexts"):  # a router that was included
            for context in route.effective_route_contexts():
                path = context.path or getattr(context.starlette_route, "path", "")
                yield path, _trees(context.original_route, context)
        else:
            yield getattr(route, "path", ""), _trees(route)


def _declared(reader: Any) -> type | None:
    """Returns the type of a parameter's values, if its declaration tells."""
    info = reader.field_info
    if any("Validator" in type(one).__name__ for one in info.metadata):
        return None  # it may make anything of them
    kind = info.annotation
    while hasattr(kind, "__supertype__"):  # of a NewType
        kind = kind.__supertype__
    if get_origin(kind) in (Union, UnionType):
        members = [one for one in get_args(kind) if one is not type(None)]
        kind = members[0] if len(members) == 1 else None
    if isinstance(kind, type) and issubclass(kind, Enum):
        kinds = {type(one.value) for one in kind}
        kind = kinds.pop() if len(kinds) == 1 else None
    return kind if kind in ONE_TEXT + SEVERAL_TEXTS else None


def _converted(connection: HTTPConnection, reader: Any, field: str, found: object) -> object:
    """Returns what FastAPI makes of a part of the path, or raises what it answers."""
    value, errors = reader.validate(found, {}, loc=("path", field))
    if errors:
        from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError

        plain = connection.scope["type"] == "http"
        raise (RequestValidationError if plain else WebSocketRequestValidationError)(errors)
    return value.value if isinstance(value, Enum) else value


def _listed(kinds: set[type]) -> str:
    names = sorted(kind.__name__ for kind in kinds)
    return " and ".join(f"as {'an' if name[0] in 'aeiou' else 'a'} {name}" for name in names)


def _shown(values: list[object]) -> str:
    return " and ".join(sorted({f"{value!r:.80}" for value in values}))
