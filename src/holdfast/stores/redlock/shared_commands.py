"""The commands for locks that several may hold at once: semaphores and read/write locks.

The *mode* of a hold says which part of the lock it is: a slot of a semaphore, by its number; `r`, a
reader; or `w`, the writer. Each hold is a lock of its own to the two phases of a grant.
"""

from __future__ import annotations

from ..redis.answers import millis
from ..redis.wire.protocol import bulk
from .commands import SEPARATOR, CommandPrefixes, Commands, LockTerms, packed_request

READER, WRITER, SLOT = "r", "w", "s"
SEMAPHORE, READ_WRITE = "semaphore", "rwlock"
INTENT = 2.5
"""Heartbeats for which a writer that waits keeps new readers off: it says so again at each of them."""
CACHED = 64
"""Slots whose prefixes are kept."""
CROWD = 65536
"""Slots from which one is drawn: of a larger semaphore, the others serve when these are taken. Nodes
keep a bit for each slot up to the highest that is in use."""


def mode_of(kind: str, weight: int, capacity: int) -> str | None:
    """Returns the mode in which a lock is wanted; empty: it is a plain lock. None: there is no such."""
    if kind == SEMAPHORE:
        return SLOT if weight == 1 else None
    if kind == READ_WRITE:
        return {1: READER, capacity: WRITER}.get(weight)
    return "" if capacity == 1 else None


class SharedCommands:
    """The commands of requests with the same terms, for whatever slot."""

    def __init__(self, commands: Commands, terms: LockTerms, letter: str) -> None:
        self.letter = letter
        self.capacity = terms.capacity
        self._ttl, self._label, self._kind = terms.ttl, terms.label, terms.kind
        plain = commands.any_prefixes(terms.name)
        scripts = commands.scripts
        capacity = bulk(b"%d" % terms.capacity)
        request = packed_request(terms.ttl, terms.label, letter)
        meta = SEPARATOR.join(("rls1", terms.kind, str(terms.capacity))).encode()
        patience = millis(commands.heartbeat * INTENT)
        take = scripts["take_shared"].command(4, 12) + commands.counters + commands.marker
        take += plain.request_keys + bulk(meta) + capacity
        rest = bulk(b"%d" % millis(terms.ttl)) + request
        self._takes = take + bulk(b"0") + rest, take + bulk(b"%d" % patience) + rest
        self.request = request
        both = plain.both
        self._raise = scripts["raise_shared"].command(3, 8)
        self._raise += plain.lock + plain.counter + commands.marker
        self._release = scripts["free_shared"].command(2, 4) + both
        self._free = scripts["free_shared"].command(2, 6) + both
        self._wait = scripts["wait_shared"].command(2, 8) + both + commands.lateness + request
        self._wait += bulk(letter.encode()) + capacity
        self._leave = scripts["leave_shared"].command(2, 3) + both
        self._leave_late = scripts["leave_shared"].command(2, 4) + both
        self._plain = plain
        self._made: dict[tuple[int | None, bool], CommandPrefixes] = {}

    def prefixes(self, slot: int | None, intent: bool = False) -> CommandPrefixes:
        """Returns the prefixes for one mode: for `slot`, or for readers, or for writers.

        `intent`: a writer that is refused keeps new readers off for a moment.
        """
        kept = self._made.get((slot, intent))
        if kept is not None:
            return kept
        if len(self._made) >= CACHED:
            self._made.clear()
        mode = bulk(self.letter.encode() if slot is None else b"%d" % slot)
        prefixes = self._made[slot, intent] = self._plain._replace(
            ttl=self._ttl,
            label=self._label,
            kind=self._kind,
            take=self._takes[intent] + mode,
            raise_=self._raise + mode,
            release=self._release + mode,
            free=self._free + mode,
            wait=self._wait,
            leave=self._leave,
            leave_late=self._leave_late,
            mode=mode,
            slot=slot,
        )
        return prefixes


def as_reader(prefixes: CommandPrefixes) -> CommandPrefixes:
    """Returns the prefixes of a hold that was a writer's and is a reader's now."""
    mode, end = bulk(READER.encode()), -len(prefixes.mode)
    return prefixes._replace(
        mode=mode,
        raise_=prefixes.raise_[:end] + mode,
        release=prefixes.release[:end] + mode,
        free=prefixes.free[:end] + mode,
    )
