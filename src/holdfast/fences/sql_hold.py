"""The guarded transaction of `SqlFence.hold`, which is still the same one when its body ends.

MySQL and MariaDB commit by themselves before and after DDL, and sqlite3 before `executescript`: what
was guarded is committed half-way, and what follows is not guarded. A savepoint is gone with its
transaction, so one that is set behind the guard tells.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..errors import GuaranteeError
from .sql_connections import ConnectionKind, Request, execute, execute_async, kind_of
from .sql_sessions import connection_of, is_session

_numbers = itertools.count(1)


class HeldTransaction:
    """The body of `with fence.hold(connection, resource, token)`."""

    def __init__(self, connection: Any, resource: str, guard: Callable[[Any], Any]) -> None:
        """`guard` is told the connection; that of a session is asked for when the body begins."""
        self._connection = connection
        self._resource = resource
        self._guard = guard
        self._kind: ConnectionKind | None = None if is_session(connection) else kind_of(connection)
        self._savepoint = f"holdfast_{next(_numbers)}"

    def __enter__(self) -> None:
        if self._kind is None:
            self._connection = connection_of(self._connection)
            self._kind = kind_of(self._connection)
        self._guard(self._connection)
        execute(self._kind, self._connection, Request(f"SAVEPOINT {self._savepoint}"))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None or self._kind is None:
            return  # it is rolled back, by whoever began it
        try:
            execute(self._kind, self._connection, self._release())
        except Exception as gone:
            raise self._over() from gone

    async def __aenter__(self) -> None:
        if self._kind is None:
            self._connection = await connection_of(self._connection)
            self._kind = kind_of(self._connection)
        await self._guard(self._connection)
        await execute_async(self._kind, self._connection, Request(f"SAVEPOINT {self._savepoint}"))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None or self._kind is None:
            return
        try:
            await execute_async(self._kind, self._connection, self._release())
        except Exception as gone:
            raise self._over() from gone

    def _release(self) -> Request:
        return Request(f"RELEASE SAVEPOINT {self._savepoint}")

    def _over(self) -> GuaranteeError:
        return GuaranteeError(
            f"the transaction that was guarded for {self._resource!r} is over before its end: DDL on "
            "MySQL and MariaDB, executescript() of sqlite3, or a commit of your own, ends it; what was "
            "written after that was not guarded. Roll back, and keep these out of it"
        )
