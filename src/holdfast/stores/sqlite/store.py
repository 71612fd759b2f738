"""The embedded store: one SQLite file, many processes of one machine.

Every step is one write transaction, entered through the gate and over in some ten microseconds; a
process that is frozen inside one holds up the others, which is declared and bounded by their own
deadlines. What a step decides is in `ledger`; what it reads and writes is in `rows`; who is alive is
in `presence`; whether the file is still the right one, in `link`. Wake-ups are sent after the
transaction stands and the gate is open again.

*Expiry* is counted on the boot clock, which all processes of a machine share.

*Tokens* rise whatever happens. They start from the wall clock in µs at the first opening after a
boot, and from then on follow the boot clock, which no operator sets back. Ordinary commits do not wait
for the disk, so a power cut may undo the last of them; but a *ceiling* above all tokens in use was on
the disk before they were handed out, and after a reboot the tokens go on above the ceiling. So not
even a clock that was set back across a power cut repeats one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, TypeVarTuple

from ...clock import BootClock
from ...entries import Ask, Claim, Entry, Wake
from ...errors import BackendUnavailable
from ...ledger import Ledger
from ...model import Busy, Granted, LockState, Outcome, Queued, Renewed
from .connection import Link, roll_back
from .file import unavailable
from .lockfiles import Tether
from .mailbox import DELIVERED, send
from .rows import (
    COUNTERS,
    CeilingReached,
    SqliteRows,
    boot_microseconds,
    grant_alone,
    hand_over,
    release_alone,
)

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

TIDY_EVERY = 60.0
CROWDED_FOR = 2.0
IDLE = 0.005
"""Seconds in which we did nothing, after which a release takes long enough to be announced. Where locks
change hands all the time, nobody is idle for so long between a grant and its release."""
REMEMBERED_CROWDS = 1000
_AUDIT_KEPT = 1000
_NOBODY: Mapping[str, Sequence[Entry]] = {}

_clock = BootClock()


class _FolderReplaced(Exception):
    """The folder of the living is another one than when we opened, and others have noticed."""


class Store(Link):
    """One connection to the file; for any number of threads."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.address = ""
        """Where our waiters are woken; empty until somebody has to wait."""
        self._tethers: dict[str, Tether] = {}
        self._tidied = 0.0
        self._crowded: dict[str, float] = {}

    # The steps.

    def open(self, deadline: float) -> None:
        """Open the file now, rather than with the first step."""
        self._step(lambda ledger, rows: None, (), deadline)

    def acquire(
        self, ask: Ask, deadline: float
    ) -> tuple[Granted | Queued | Busy, Mapping[str, Sequence[Entry]]]:
        return self._step(self._acquire, (ask,), deadline, self._acquire_alone)

    def _acquire(self, ledger: Ledger, rows: SqliteRows, ask: Ask) -> Granted | Queued | Busy:
        return ledger.acquire(ask, self.process, self.address)

    def _acquire_alone(self, connection: sqlite3.Connection, ask: Ask) -> Granted | None:
        token = grant_alone(connection, self._mint, ask, self.process, self.address, self._live_id)
        return None if token is None else Granted(token, ask.ttl)

    def renew(
        self, claims: list[Claim], deadline: float
    ) -> tuple[list[Outcome], Mapping[str, Sequence[Entry]]]:
        def step(ledger: Ledger, rows: SqliteRows) -> list[Outcome]:
            now = rows.now()
            if now > self._tidied + TIDY_EVERY:
                self._tidy(now)
            outcomes: list[Outcome] = []
            for claim in claims:
                token = rows.renew_held(claim)
                outcomes.append(ledger.renew(claim) if token is None else Renewed(token, claim.ttl))
            return outcomes

        return self._step(step, (), deadline)

    def release(self, name: str, owner: str, deadline: float) -> bool:
        released, _ = self._step(_release, (name, owner), deadline, self._release_quickly)
        tether = self._tethers.pop(owner, None) if self._tethers else None
        if tether is not None:
            tether.close()
        return released

    def _release_quickly(
        self, connection: sqlite3.Connection, name: str, owner: str
    ) -> bool | None:
        assert self._presence is not None
        idle = self._idle > IDLE
        if idle:
            # Our code has left the processor's caches, so the step takes several times as long as
            # else. Who waits for us may as well wake up meanwhile.
            self._presence.stir()
        if not (self._crowded and self._crowded.get(name, 0.0) > _clock.now()):
            freed = release_alone(connection, name, owner)
            if freed is not None or not idle:
                return freed
        return self._hand_over(connection, name, owner)

    def _hand_over(self, connection: sqlite3.Connection, name: str, owner: str) -> bool | None:
        wake = hand_over(connection, self._mint, name, owner)
        if wake is None:
            return None
        self._crowded[name] = _clock.now() + CROWDED_FOR
        assert self._presence is not None
        # Who is bound to no process lives until its time is over.
        if (
            self._send(wake) != DELIVERED
            and wake.process
            and not self._presence.is_alive(wake.process)
        ):
            # It was given to the dead. Give it back in their name, and the next one has it.
            try:
                _, ledger = self._transaction(connection, _release, (name, wake.owner))
            except _FolderReplaced:
                _, ledger = self._transaction(self._reopen(), _release, (name, wake.owner))
            self._wake(ledger.wakes)
        return True

    def inspect(self, name: str, deadline: float) -> LockState:
        state, _ = self._step(
            lambda ledger, rows: ledger.state(name, self._last_token()), (), deadline
        )
        return state

    def list(self, prefix: str, deadline: float) -> list[LockState]:
        def step(ledger: Ledger, rows: SqliteRows) -> list[LockState]:
            names = self._live_connection().execute(
                "SELECT DISTINCT name FROM entry WHERE name >= ? AND substr(name, 1, ?) = ? "
                "ORDER BY name",
                (prefix, len(prefix), prefix),
            )
            states = [ledger.state(name, self._last_token()) for (name,) in names.fetchall()]
            return [state for state in states if state.holders or state.waiters]

        states, _ = self._step(step, (), deadline)
        return states

    def force_release(self, name: str, actor: str, deadline: float) -> bool:
        def step(ledger: Ledger, rows: SqliteRows) -> bool:
            broken = ledger.force_release(name)
            holders = ", ".join(f"{entry.label} token {entry.token}" for entry in broken)
            execute = self._live_connection().execute
            execute(
                "INSERT INTO audit (at, name, actor, holders) VALUES (?, ?, ?, ?)",
                (rows.wall(), name, actor, holders),
            )
            execute("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", (_AUDIT_KEPT,))
            return bool(broken)

        forced, _ = self._step(step, (), deadline)
        return forced

    def tether(self, name: str, owner: str, deadline: float) -> int:
        """Bind the entry to a descriptor too, so that it outlives this process with whoever has it."""
        presence = self._presence
        if presence is None:
            raise BackendUnavailable(f"the embedded store {self.path!r} is not open")
        tether = presence.tether()

        def step(ledger: Ledger, rows: SqliteRows) -> int:
            return (
                self._live_connection()
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

    def dead(self, entry: Entry) -> bool:
        """Whether nobody is behind this entry any more. Asked outside of a step."""
        presence = self._presence
        return presence is not None and not (
            presence.is_alive(entry.process)
            or (bool(entry.tether) and presence.is_tethered(entry.tether))
        )

    def watch(self, process: str) -> int | None:
        """A descriptor that becomes readable when that process dies, if it is not our own."""
        return None if self._presence is None else self._presence.watch(process)

    def close(self, deadline: float | None = None) -> None:
        try:
            self._gate.enter(deadline)
        except BackendUnavailable:
            self._closed = True
            return  # somebody is frozen inside; the process's end will close it
        try:
            self._closed = True
            for tether in self._tethers.values():
                tether.close()
            self._tethers.clear()
            self._forget()
        finally:
            try:
                self._gate.leave()
            except BaseException:
                self._gate.leave()
                raise
            self._gate.close()

    # Their frame.

    def _step(
        self,
        step: Callable[[Ledger, SqliteRows, *Args], Result],
        args: tuple[*Args],
        deadline: float,
        quickly: Callable[[sqlite3.Connection, *Args], Result | None] | None = None,
    ) -> tuple[Result, Mapping[str, Sequence[Entry]]]:
        """One transaction: everything that `step` does, or nothing of it.

        `quickly` is tried before it: the same step for the common case, in as few statements as can
        be. It answers None, and has done nothing, if that is not the case.
        """
        self._gate.enter(deadline)
        try:
            connection = self._current_connection()
            if quickly is not None:
                quick = quickly(connection, *args)
                if quick is not None:
                    return quick, _NOBODY
            try:
                result, ledger = self._transaction(connection, step, args)
            except _FolderReplaced:
                result, ledger = self._transaction(self._reopen(), step, args)
        except sqlite3.Error as error:
            raise unavailable(self.path, error) from error
        finally:
            # Here, and not in a method: an interrupt may come at the very entry of one.
            try:
                self._gate.leave()
            except BaseException:
                self._gate.leave()
                raise
        if ledger.wakes:
            self._wake(ledger.wakes)
        return result, ledger.blockers

    def _wake(self, wakes: Sequence[Wake]) -> None:
        if len(self._crowded) > REMEMBERED_CROWDS:
            self._crowded.clear()
        for wake in wakes:
            # Others want this lock: for a while, do not first try its release as if nobody did.
            self._crowded[wake.name] = _clock.now() + CROWDED_FOR
            self._send(wake)

    def _send(self, wake: Wake) -> str | None:
        if not wake.address:
            return None
        return send(self.live, wake.address, b"%s %d" % (wake.owner.encode(), wake.token))

    def _transaction(
        self,
        connection: sqlite3.Connection,
        step: Callable[[Ledger, SqliteRows, *Args], Result],
        args: tuple[*Args],
    ) -> tuple[Result, Ledger]:
        try:
            return self._attempt(connection, step, args, durable=False)
        except CeilingReached:
            connection.execute("PRAGMA synchronous = FULL")
            try:
                return self._attempt(connection, step, args, durable=True)
            finally:
                connection.execute("PRAGMA synchronous = NORMAL")

    def _attempt(
        self,
        connection: sqlite3.Connection,
        step: Callable[[Ledger, SqliteRows, *Args], Result],
        args: tuple[*Args],
        durable: bool,
    ) -> tuple[Result, Ledger]:
        assert self._presence is not None
        try:
            connection.execute("BEGIN IMMEDIATE")
            live, *counters = connection.execute(COUNTERS).fetchone()
            if live != self._live_id:
                raise _FolderReplaced
            self._mint.note(*counters[1:])
            rows = SqliteRows(connection, self._presence, counters, durable)
            ledger = Ledger(rows)
            result = step(ledger, rows, *args)
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
        return result, ledger

    # Their parts.

    def _last_token(self) -> int:
        """No grant had a higher one, and every grant from now on will."""
        last: int
        base: int
        last, base = self._live_connection().execute("SELECT token, base FROM store").fetchone()
        return max(last, base + boot_microseconds())

    def _tidy(self, now: float) -> None:
        """The cleaner: rows that nobody will ask for again, and what dead processes left behind."""
        self._tidied = now
        presence = self._presence
        assert presence is not None
        execute = self._live_connection().execute
        # Only what ended some time ago: the steps themselves see to the rest, and hand on.
        execute("DELETE FROM entry WHERE expires < ?", (now - TIDY_EVERY,))
        processes = execute("SELECT DISTINCT process FROM entry WHERE process <> ''").fetchall()
        for (process,) in processes:
            if not presence.is_alive(process):
                # Not where others wait: their heartbeats remove it, and admit the next.
                held = (
                    "SELECT name, owner, tether FROM entry AS e WHERE process = ? AND waiting = 0 "
                    "AND NOT EXISTS (SELECT 1 FROM entry WHERE name = e.name AND waiting = 1)"
                )
                for name, owner, tether in execute(held, (process,)).fetchall():
                    if not (tether and presence.is_tethered(tether)):
                        execute("DELETE FROM entry WHERE name = ? AND owner = ?", (name, owner))
        presence.sweep()


def _release(ledger: Ledger, rows: SqliteRows, name: str, owner: str) -> bool:
    return ledger.release(name, owner)
