"""The embedded store: one SQLite file, many processes of one machine.

Every step is one write transaction (`transactions`). What a step decides is in `ledger`; what it reads
and writes is in `rows`, for the common cases in `shortcuts`; which processes are alive is in
`presence`; whether the file is still the right one, in `connection`; why tokens rise, in `tokens`.

*Expiry* is counted on the boot clock, which all processes of a machine share.
"""

from __future__ import annotations

import sqlite3

from ...entries import AcquireRequest, Claim, Entry
from ...errors import BackendUnavailable
from ...ledger import Ledger
from ...model import Busy, Granted, LockState, Outcome, Queued
from . import cleaning, tokens
from .lockfiles import Opened, Tether
from .mailbox import DELIVERED
from .rows import SqliteRows
from .shortcuts import grant_alone, hand_over, release_alone
from .transactions import Blockers, Transactions

_AUDIT_KEPT = 1000


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
        return ledger.acquire(request, self.process, self.address)

    def _acquire_alone(
        self, connection: sqlite3.Connection, request: AcquireRequest
    ) -> Granted | None:
        token = grant_alone(
            connection, self._mint, request, self.process, self.address, self._folder_id
        )
        return None if token is None else Granted(token, request.ttl)

    def renew(self, claims: list[Claim], deadline: float) -> tuple[list[Outcome], Blockers]:
        """Renews leases and places in the queue; returns one outcome for each claim, in order."""

        def step(ledger: Ledger, rows: SqliteRows) -> list[Outcome]:
            now = rows.now()
            if now > self._cleaned + cleaning.EVERY:
                self._cleaned = now
                assert self._presence is not None
                cleaning.clean(self._open_connection(), self._presence, now)
            return ledger.renew_all(claims)

        return self._step(step, (), deadline)

    def release(self, name: str, owner: str, deadline: float) -> bool:
        """Frees the lease, or leaves the queue; returns whether a live lease was freed."""
        released, _ = self._step(_release, (name, owner), deadline, self._release_or_hand_over)
        tether = self._tethers.pop(owner, None) if self._tethers else None
        if tether is not None:
            tether.close()
        return released

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

    def force_release(self, name: str, actor: str, deadline: float) -> bool:
        """Ends every holder's lease, with an audit record; returns whether there was a holder."""

        def step(ledger: Ledger, rows: SqliteRows) -> bool:
            broken = ledger.force_release(name)
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
            self._disconnect()
        finally:
            try:
                self._gate.leave()
            except BaseException:
                self._gate.leave()
                raise
            self._gate.close()

    def _last_token(self) -> int:
        """Returns a token that no grant had exceeded, and that every later grant will exceed."""
        last: int
        base: int
        last, base = self._open_connection().execute("SELECT token, base FROM store").fetchone()
        return max(last, base + tokens.boot_microseconds())


def _release(ledger: Ledger, rows: SqliteRows, name: str, owner: str) -> bool:
    return ledger.release(name, owner)
