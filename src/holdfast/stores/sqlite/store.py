"""The embedded store: one SQLite file, many processes of one machine.

Every step is one write transaction (`transactions`). What a step decides is in `ledger`; what it reads
and writes is in `rows`, for the common cases in `shortcuts`; which processes are alive is in
`presence`; whether the file is still the right one, in `connection`; why tokens rise, in `tokens`.

*Expiry* is counted on the boot clock, which all processes of a machine share.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ...entries import AcquireRequest, Claim, Entry, WakeUp
from ...errors import BackendUnavailable
from ...ledger import Ledger
from ...model import Busy, Gone, Granted, LockState, Observation, Outcome, Queued
from . import cleaning, tokens
from .lockfiles import Opened, Tether
from .mailbox import DELIVERED
from .rows import SqliteRows
from .shortcuts import grant_alone, hand_over, release_alone
from .transactions import Blockers, Transactions

_AUDIT_KEPT = 1000


class _NotAll(Exception):
    """Raised inside a transaction that cannot grant all that it should."""

    def __init__(self, remaining: float) -> None:
        self.remaining = remaining


class Store(Transactions):
    """The store at one path, as one manager uses it; for any number of threads."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.address = ""
        """The mailbox at which our waiters are woken; empty until the first of them has to wait."""
        self._tethers: dict[str, Tether] = {}
        self._cleaned = 0.0

    def open(self, deadline: float) -> None:
        """Opens the file now, rather than with the first step."""
        self._step(lambda ledger, rows: None, (), deadline)

    def acquire(
        self, request: AcquireRequest, deadline: float
    ) -> tuple[Granted | Queued | Busy, Blockers]:
        """Grants the lock, enqueues the owner or returns `Busy`."""
        return self._step(self._acquire, (request,), deadline, self._acquire_alone)

    def _acquire(
        self, ledger: Ledger, rows: SqliteRows, request: AcquireRequest
    ) -> Granted | Queued | Busy:
        return ledger.acquire(request, self.process if request.bound else "", self.address)

    def acquire_all(
        self, requests: Sequence[AcquireRequest], deadline: float
    ) -> list[Granted] | Busy:
        """Grants all of these locks, or none of them and changes nothing."""

        def step(ledger: Ledger, rows: SqliteRows) -> list[Granted]:
            grants: list[Granted] = []
            for request in requests:
                answer = self._acquire(ledger, rows, request)
                if not isinstance(answer, Granted):
                    raise _NotAll(answer.remaining)  # which rolls back
                grants.append(answer)
            return grants

        try:
            grants, _ = self._step(step, (), deadline)
        except _NotAll as busy:
            return Busy(busy.remaining)
        return grants

    def _acquire_alone(
        self, connection: sqlite3.Connection, request: AcquireRequest
    ) -> Granted | None:
        token = grant_alone(
            connection,
            self._mint,
            request,
            self.process if request.bound else "",
            self.address,
            self._folder_id,
        )
        return None if token is None else Granted(token, request.ttl)

    def renew(self, claims: list[Claim], deadline: float) -> tuple[list[Outcome], Blockers]:
        """Renews leases and places in the queue; returns one outcome for each claim, in order."""

        def step(ledger: Ledger, rows: SqliteRows) -> list[Outcome]:
            self._clean(ledger, rows)
            return ledger.renew_all(claims)

        return self._step(step, (), deadline)

    def _clean(self, ledger: Ledger, rows: SqliteRows) -> None:
        """Removes what is of no use any more, now and then."""
        now = rows.now()
        if now > self._cleaned + cleaning.EVERY:
            self._cleaned = now
            assert self._presence is not None
            for name in cleaning.clean(self._open_connection(), self._presence, now):
                ledger.settle(name)

    def release(self, name: str, owner: str, deadline: float) -> bool:
        """Frees the lease, or leaves the queue; returns whether a live lease was freed."""
        released, _ = self._step(_release, (name, owner), deadline, self._release_or_hand_over)
        self._let_go(owner)
        return released

    def _let_go(self, owner: str) -> None:
        """Closes the tether of a lease that is no longer ours."""
        tether = self._tethers.pop(owner, None) if self._tethers else None
        if tether is not None:
            tether.close()

    def _release_or_hand_over(
        self, connection: sqlite3.Connection, name: str, owner: str
    ) -> bool | None:
        if release_alone(connection, name, owner):
            return True
        wakeup = hand_over(connection, self._mint, name, owner)
        if wakeup is None:
            return None
        assert self._presence is not None
        # A waiter that is bound to no process lives until its time is over.
        if (
            self._send(wakeup) != DELIVERED
            and wakeup.process
            and not self._presence.is_alive(wakeup.process)
        ):
            # The lock was handed over to a dead waiter: release it in its name, for the next one.
            _, ledger = self._transaction(connection, _release, (name, wakeup.owner))
            for another in ledger.wakeups:
                self._send(another)
        return True

    def inspect(self, name: str, deadline: float) -> LockState:
        """Returns the lock as it stands, without entries that are dead or expired."""
        state, _ = self._step(
            lambda ledger, rows: ledger.state(name, self._last_token()), (), deadline
        )
        return state

    def list(self, prefix: str, deadline: float) -> list[LockState]:
        """Returns every lock with a holder or a waiter whose name starts with `prefix`, by name."""

        def step(ledger: Ledger, rows: SqliteRows) -> list[LockState]:
            names = self._open_connection().execute(
                "SELECT DISTINCT name FROM entry WHERE name >= ? AND substr(name, 1, ?) = ? "
                "ORDER BY name",
                (prefix, len(prefix), prefix),
            )
            states = [ledger.state(name, self._last_token()) for (name,) in names.fetchall()]
            return [state for state in states if state.holders or state.waiters]

        states, _ = self._step(step, (), deadline)
        return states

    def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        """Ends every holder's lease, with an audit record; returns whether there was a holder.

        Later tokens are higher than `above`.
        """

        def step(ledger: Ledger, rows: SqliteRows) -> bool:
            broken = ledger.force_release(name, above)
            holders = ", ".join(f"{entry.label} token {entry.token}" for entry in broken)
            execute = self._open_connection().execute
            execute(
                "INSERT INTO audit (at, name, actor, holders) VALUES (?, ?, ?, ?)",
                (rows.wall(), name, actor, holders),
            )
            execute("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", (_AUDIT_KEPT,))
            return bool(broken)

        forced, _ = self._step(step, (), deadline)
        return forced

    def amend(self, name: str, owner: str, weight: int, text: str | None, deadline: float) -> bool:
        """Gives a lease less weight, or its label another text; returns whether it was held."""
        held, _ = self._step(
            lambda ledger, rows: ledger.amend(name, owner, weight, text), (), deadline
        )
        return held

    def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        """Lets a lease end after `ttl`, and not with its process; returns whether it was held.

        It leaves a row that nobody may ever ask for, so it removes those of others, too: a process
        that does only this may never renew a lease.
        """

        def step(ledger: Ledger, rows: SqliteRows) -> bool:
            self._clean(ledger, rows)
            return ledger.detach(name, owner, ttl)

        held, _ = self._step(step, (), deadline)
        self._let_go(owner)
        return held

    def adopt(self, request: AcquireRequest, giver: str, deadline: float) -> Granted | Gone:
        """Grants the lease of `giver` to the owner of the request, in its place."""

        def step(ledger: Ledger, rows: SqliteRows) -> Granted | Gone:
            process = self.process if request.bound else ""
            return ledger.adopt(request, giver, process, self.address)

        answer, _ = self._step(step, (), deadline)
        self._let_go(giver)
        return answer

    def observe(
        self, name: str, owner: str, after: int, observed_for: float, deadline: float
    ) -> Observation:
        """Returns what has changed at an election, and has `owner` woken by the next change."""

        def step(ledger: Ledger, rows: SqliteRows) -> Observation:
            observer = WakeUp(name, owner, self.process, self.address, 0)
            return ledger.observe(name, after, observer, rows.now() + observed_for)

        observation, _ = self._step(step, (), deadline)
        return observation

    def unobserve(self, name: str, owner: str, deadline: float) -> None:
        """Ends what `observe` began."""
        self._step(lambda ledger, rows: ledger.unobserve(name, owner), (), deadline)

    def tether(self, name: str, owner: str, deadline: float) -> int:
        """Binds the lease to a descriptor too, so that it outlives this process with a child that
        inherits the descriptor; returns that."""
        presence = self._presence
        if presence is None:
            raise BackendUnavailable(f"the embedded store {self.path!r} is not open")
        tether = presence.tether()

        def step(ledger: Ledger, rows: SqliteRows) -> int:
            return (
                self._open_connection()
                .execute(
                    "UPDATE entry SET tether = ? WHERE owner = ? AND name = ?",
                    (tether.name, owner, name),
                )
                .rowcount
            )

        try:
            changed, _ = self._step(step, (), deadline)
        except BaseException:
            tether.close()
            raise
        self._tethers[owner] = tether
        if not changed:
            self._tethers.pop(owner).close()
            raise BackendUnavailable(f"there is no lease on {name!r} to tether", owner=owner)
        return tether.fd

    def is_dead(self, entry: Entry) -> bool:
        """Returns whether the entry's process is dead, and its tether free. Used outside of steps."""
        presence = self._presence
        return presence is not None and not (
            presence.is_alive(entry.process)
            or (bool(entry.tether) and presence.is_tethered(entry.tether))
        )

    def watch(self, process: str, opened: Opened) -> None:
        """Adds to `opened` a descriptor that becomes readable when that process dies, unless it is our
        own."""
        if self._presence is not None:
            self._presence.watch(process, opened)

    def close(self, deadline: float | None = None) -> None:
        """Closes the connection, and lets go of all tethers."""
        try:
            self._gate.enter(deadline)
        except BackendUnavailable:
            self._closed = True
            return  # a process is frozen inside; the end of ours will close it
        try:
            self._closed = True
            for tether in self._tethers.values():
                tether.close()
            self._tethers.clear()
            self._write_back_log()
            self._disconnect()
        finally:
            try:
                try:
                    self._gate.leave()
                finally:
                    self._gate.leave()
            finally:
                self._gate.leave()
            self._gate.close()

    def _last_token(self) -> int:
        """Returns a token that no grant had exceeded, and that every later grant will exceed."""
        last: int
        base: int
        last, base = self._open_connection().execute("SELECT token, base FROM store").fetchone()
        return max(last, base + tokens.boot_microseconds())


def _release(ledger: Ledger, rows: SqliteRows, name: str, owner: str) -> bool:
    return ledger.release(name, owner)
