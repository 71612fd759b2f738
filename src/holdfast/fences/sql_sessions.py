"""Sessions of SQLAlchemy's, in place of a connection: each has one, in its transaction.

A `Session`, an `AsyncSession`, their subclasses, and the scoped ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from ..errors import ConfigError

Verb = TypeVar("Verb", bound=Callable[..., Any])

_known: dict[type, bool] = {}


def is_session(place: object) -> bool:
    """Tells whether `place` is a session, which has a connection, and no connection itself."""
    cls = type(place)
    found = _known.get(cls)
    if found is None:
        ours = any(base.__module__.partition(".")[0] == "sqlalchemy" for base in cls.__mro__)
        # An engine has no `connection`, and a connection has no `get_bind`.
        found = _known[cls] = ours and hasattr(cls, "get_bind") and hasattr(cls, "connection")
    return found


def is_asynchronous(session: object) -> bool:
    return iscoroutinefunction(getattr(type(session), "connection", None))


def connection_of(session: Any) -> Any:
    """Returns the connection of the session's transaction; in asyncio, a coroutine that does.

    Raises `ConfigError` for a session with several databases (`binds=`): nobody says which is meant;
    and for one of two phases on SQLite, of which SQLAlchemy itself would say no word.
    """
    plain = session.registry() if hasattr(session, "registry") else session
    plain = getattr(plain, "sync_session", plain)
    default = plain.bind
    # Before SQLAlchemy 2.1 the mapping is private.
    binds = getattr(plain, "binds", None) or getattr(plain, "_Session__binds", None) or {}
    others = list(binds.values())
    places = {id(one): one for one in [default, *others] if one is not None}
    if len(places) > 1:
        raise ConfigError(
            "this session has several databases (binds=), and the fence is in one of them: give the "
            'connection of that one, as in session.connection(bind_arguments={"mapper": Invoice})'
        )
    for place in places.values():
        if plain.twophase and place.dialect.name == "sqlite":
            raise ConfigError(
                "this session commits in two phases (twophase=True), which SQLite cannot do: make it "
                "without, or on PostgreSQL, MySQL or MariaDB"
            )
    if default is None and others:
        return session.connection(bind_arguments={"bind": others[0]})
    return session.connection()


def takes_sessions(verb: Verb) -> Verb:
    """Lets a verb of a fence be given a session, whose connection it is done on.

    The session begins its transaction then, if it has none under way.
    """

    @wraps(verb)
    def taking(self: Any, connection: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_session(connection):
            return verb(self, connection, *args, **kwargs)
        if is_asynchronous(connection):
            return _later(connection_of(connection), lambda one: verb(self, one, *args, **kwargs))
        return verb(self, connection_of(connection), *args, **kwargs)

    return cast(Verb, taking)


async def _later(connection: Awaitable[Any], verb: Callable[[Any], Awaitable[Any]]) -> Any:
    return await verb(await connection)
