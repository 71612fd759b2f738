"""How a token passes a `SqlFence`: by its mark's row, within the caller's transaction.

The mark is raised by one conditional UPDATE, which also locks its row until the caller commits. So
whoever passed has the resource to himself until then, a rollback or a crash undoes mark and write
alike, and a lower token that comes later finds the higher mark.

A resource without a row gets one that starts at the floor of what was pruned. The floors are read with
a lock against whoever prunes: either we see what he forgot, or he does not see our row.

Locks are taken in one order, the floors' row first, so that prune and guard never wait for each other
in a circle. A row whose mark was raised a short time ago is the exception: it is not pruned yet. A row
that was made by a transaction which may still be rolled back is none.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from ..errors import GuaranteeError, StaleToken
from . import floors, rules
from .rules import Credential
from .sql_connections import Request, Steps
from .sql_dialects import SQLITE, Statements, encoder
from .sql_marks import look, read_floors

KNOWN_LIMIT = 10_000
RECENT = 60.0
"""Seconds for which a row counts as there, once its mark was raised: what is pruned is older."""
SHOWN = 15.0
"""Seconds for which a reader's token counts as remembered, once it was: then only a look is needed."""
ROUNDS = 4


class SqlGuard:
    """The way past the marks of one fence, and what this process knows of them."""

    def __init__(self, single_use: bool) -> None:
        self._single_use = single_use
        self._known: dict[tuple[str, bool], tuple[int, str, float]] = {}
        """Resources that have, or had, a row, and whether a reader has passed there or a writer: what
        passed last, and when the mark was raised. A hint, never relied upon."""
        self._made: dict[str, float] = {}
        """Resources whose row was made here, and when: perhaps it was rolled back. For databases with
        gaps, where whoever takes it for there, and does not find it, is in the way of others."""

    def request(
        self, sql: Statements, resource: str, given: Credential, there: bool = False
    ) -> Request | None:
        """Returns the statement that lets `given` pass; None if the resource may need a row first.

        `there` says that it has one, which is locked.
        """
        key = (resource, given.reader)
        last = self._known.get(key)
        if sql.dialect.gaps and last is not None and last[2] + RECENT <= monotonic():
            self._known.pop(key, None)  # so this write raises the mark, and makes the row recent
            last = None
        if last is None:
            if len(self._known) >= KNOWN_LIMIT:
                self._known.clear()
            if sql.dialect.gaps and not there:
                return None
        name: Any = resource
        lock: Any = given.lock
        token = given.token
        if sql.dialect.binary:
            name, lock = resource.encode(), lock.encode()
        if given.reader:
            if lock:
                return Request(sql.read_locked, (token, token, lock, name, token, lock))
            return Request(sql.read, (token, token, name, token))
        if last is not None and last[:2] == (token, given.lock) and not self._single_use:
            # The same holder's next write changes no more than it must.
            if lock:
                return Request(sql.again_locked, (name, token, lock))
            return Request(sql.again, (name, token))
        if lock:
            return Request(sql.update_locked, (token, lock, name, token, token, lock))
        return Request(sql.update, (token, name, token, token))

    def passed(self, resource: str, given: Credential) -> None:
        """Remembers that `given` has passed, and when the mark was raised; not if its row may go."""
        if resource in self._made:
            return
        key = (resource, given.reader)
        last = self._known.get(key)
        if last is None or given.reader or last[:2] != (given.token, given.lock):
            self._known[key] = (given.token, given.lock, monotonic())

    def shown(self, resource: str, given: Credential) -> bool:
        """Returns True if a reader was remembered a short time ago, as far as this process knows."""
        last = self._known.get((resource, True))
        return (
            last is not None
            and last[:2] == (given.token, given.lock)
            and monotonic() < last[2] + SHOWN
        )

    def compare(
        self, sql: Statements, resource: str, given: Credential, is_open: Callable[[], bool]
    ) -> Steps[None]:
        """Compares the token of a reader who has been remembered; if it was not, remembers it."""
        name = encoder(sql)(resource)
        mark = yield from look(sql, name)
        if sql.dialect is SQLITE and not is_open():
            # Python's sqlite3 begins none for a SELECT, and a check outside of it says nothing.
            yield Request("BEGIN")
            mark = yield from look(sql, name)
        if mark is None or mark.reader < given.token:
            self._known.pop((resource, True), None)
            yield from self.let_pass(sql, resource, given)
            return
        refused = rules.refusal(resource, mark, given, self._single_use)
        if refused is not None:
            raise refused

    def let_pass(
        self,
        sql: Statements,
        resource: str,
        given: Credential,
        tried: bool = False,
        there: bool = False,
        first: bool = False,
    ) -> Steps[None]:
        """Raises the mark of a resource to `given`; raises `StaleToken` if it may not pass.

        `tried` says that this was asked for already, and changed nothing; `there`, that the resource
        has a row; `first`, that nothing was done in the transaction before.
        """
        name = encoder(sql)(resource)
        for _ in range(ROUNDS):
            request = self.request(sql, resource, given, there)
            if request is None:
                refused = yield from self._begin(sql, resource, name, given, first)
                if refused is None:
                    there, first = True, False
                    continue
            if request is not None and not tried and (yield request).changed == 1:
                self.passed(resource, given)
                return
            tried = False
            self._known.pop((resource, given.reader), None)
            # Refused; or there is no row; or its first writer has committed it just now.
            mark = yield from look(sql, name, own=True)
            if mark is None:
                refused = yield from self._begin(sql, resource, name, given, False)
            else:
                refused = rules.refusal(resource, mark, given, self._single_use)
            if refused is not None:
                raise refused
            there = True
        raise GuaranteeError(
            f"the fence's row for {resource!r} could not be locked; roll back and try again"
        )

    def _begin(
        self, sql: Statements, resource: str, name: Any, given: Credential, first: bool
    ) -> Steps[StaleToken | None]:
        """Gives the resource a row that starts at its floor, unless it has one.

        If the floor refuses `given`, it makes none and returns the refusal. A row that is made and
        then rolled back would leave gaps locked by those who waited for it.
        """
        known = yield from read_floors(sql)
        mark = floors.unknown(known, given)
        refused = rules.refusal(resource, mark, given, self._single_use)
        if refused is None:
            made = (yield Request(sql.begin, (name, mark.highest, mark.reader))).changed == 1
            if sql.dialect.gaps:
                self._note(resource, made, first)
        return refused

    def _note(self, resource: str, made: bool, first: bool) -> None:
        """Notes whether a row is there for good: one that was there when our transaction began is."""
        if made:
            if len(self._made) >= KNOWN_LIMIT:
                self._made.clear()
            self._made[resource] = monotonic()
        elif first or self._made.get(resource, 0.0) + RECENT <= monotonic():
            self._made.pop(resource, None)
