"""The watcher of a namespace, and the ring in which it writes down what it sees of the store.

It looks only while somebody listens. What it sees is written down once for all listeners; each of
them takes what it has not had yet. What comes of one look goes out to all listeners a few at a time,
so that no request waits for all of them.

Events are differences between two looks, so two services on one store tell the same. An id is
`{boot}-{number}`: the number counts the events of this process, and is written so that nobody learns
from it how much happens to locks that are not shown.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from .._runtime.aio import Routine
from ..errors import LockError
from ..model import LockState, Participant
from ..watching import CHANGED, ENDED, sightings
from .answers import dumps
from .hidden_numbers import HiddenNumbers
from .lock_texts import in_parts
from .streams import Stream, event
from .views import View, participant_view

if TYPE_CHECKING:
    from .store import Store

TOLD_BELOW = 0.4
"""The part of a lease that is left, by what was told, when it is told that it was renewed."""
LATE_BELOW = 0.25
"""The part of a lease that is left, at the most, when a renewal counts as late. Ours come with two
thirds left, so the holder, or its way to the store, was stopped for a while."""
LINGER = 30.0
"""Seconds for which the watching goes on after the last listener has gone: who comes back misses
nothing."""
LINE = 60
"""Seconds whose grants are told, by the second, when a listener begins."""
AT_ONCE = 50
"""Listeners that are woken in one turn of the event loop."""
MOST_IN_ONE = 500
"""Events that are sent to a listener in one piece."""


class Told(NamedTuple):
    """An event in the ring."""

    number: int
    kind: str
    name: str
    """The lock; empty for an event of the store."""
    at: float
    """Seconds since the epoch."""
    view: View
    text: str
    """The data of the event, as JSON."""
    data: bytes
    """The event as it is sent by itself."""


class Renewals(NamedTuple):
    """The renewals of one lease, as far as they are known."""

    told: float
    """When it ends, by what was told."""
    seen: float
    """When it ends, by the latest look."""
    most: float
    """The most that was seen to remain of it."""


class Watcher:
    """The watcher of one namespace, and its ring."""

    def __init__(self, store: Store, look_every: float, kept: int) -> None:
        self._store = store
        self._look_every = look_every
        self._boot = os.urandom(4).hex()
        self._numbers = HiddenNumbers()
        self._ring: deque[Told] = deque(maxlen=kept)
        self._number = 0
        self._listeners: set[Stream] = set()
        self._routine: Routine | None = None
        self._before: Sequence[LockState] | None = None
        self._interrupted = False
        """Whether the store was watched before, and is not watched, or not again yet."""
        self._looked_at = 0.0
        self._renewals: dict[tuple[str, str], Renewals] = {}
        """By lock and owner."""
        self._away = ""
        """Why the store cannot be reached; empty while it can."""
        self._left_at = 0.0
        """When the last listener left."""
        self._began = 0.0
        """Since when the store is watched without a gap, in seconds since the epoch."""
        self.looks = 0
        """The number of looks at the store so far."""
        self._pieces: dict[bool, tuple[int, bytes, int]] = {}
        """The latest piece for those who hear everything, together or one by one: behind which number,
        and up to which."""

    def __len__(self) -> int:
        return len(self._listeners)

    # The listeners.

    def join(self, stream: Stream) -> None:
        """Wakes `stream` when there is something new."""
        self._listeners.add(stream)
        if self._routine is None:
            self._routine = Routine(self._run, "holdfast-serve-events")

    def leave(self, stream: Stream) -> None:
        self._listeners.discard(stream)
        self._left_at = asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Returns the time in seconds since the epoch."""
        return self._store.wall()

    def beginning(
        self, kind: str, position: int, prefixes: tuple[str, ...], listed: bool
    ) -> Iterator[bytes]:
        """Yields what a listener begins with: events, of which the last one has the id.

        If `listed`, with all locks as they were seen last, from which on events tell what changes. The
        first event has those that are waited for most, and what all of them add up to; events `more`
        have the others.
        """
        view = self._summary(prefixes)
        if not listed or self._before is None:
            yield event(kind, dumps(view), self.cursor(position))
            return
        view |= self.look_view()
        states = [one for one in self._before if one.name.startswith(prefixes)]
        view["number"] = len(states)
        view["held"] = sum([bool(one.holders) for one in states])
        view["waiting"] = sum([len(one.waiters) for one in states])
        head = f"{dumps(view)[:-1]},"
        for text, is_last in in_parts(states):
            cursor = self.cursor(position) if is_last else ""
            yield event(kind, f'{head}"locks":{text}}}', cursor)
            kind, head = "more", "{"

    def look_view(self) -> View:
        """Returns what is told of a look: the time, and when the store was seen last, if it was."""
        now = self.wall()
        if self._before is None:
            return {"at": now}
        return {"at": now, "seen_at": now - (self._store.now() - self._looked_at)}

    def _summary(self, prefixes: tuple[str, ...]) -> View:
        """Returns since when events are known, and what they add up to."""
        now = self.wall()
        lost: list[float] = []
        grants: dict[int, int] = {}
        for one in self._ring:
            if not one.name.startswith(prefixes):
                continue
            if one.kind == "expired" and one.at > now - 3600.0:
                lost.append(one.at)
            elif one.kind == "granted" and one.at > now - LINE:
                grants[int(one.at)] = grants.get(int(one.at), 0) + 1
        view = {"at": now, "since": self._since(), "lost": lost, "grants": sorted(grants.items())}
        if self._away:
            view["unreachable"] = self._away
        return view

    def history(self, name: str) -> View:
        """Returns the events of one lock that are still known."""
        events = [{"event": one.kind, **one.view} for one in self._ring if one.name == name]
        return {"events": events, "since": self._since()}

    def _since(self) -> float:
        """Returns the time since when all events are known."""
        full = len(self._ring) == self._ring.maxlen
        return self._ring[0].at if full else self._began or self.wall()

    def position(self, cursor: str) -> int | None:
        """Returns the number behind which `cursor` goes on; None if that is not known any more."""
        boot, _, number = cursor.partition("-")
        position = self._numbers.reveal(number)
        if boot != self._boot or position is None or not self._watches():
            return None
        return position if self._first() - 1 <= position <= self._number else None

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._number

    def cursor(self, number: int) -> str:
        """Returns the id of an event."""
        return f"{self._boot}-{self._numbers.hide(number)}"

    def since(self, number: int) -> list[Told] | None:
        """Returns the next events behind `number`; None if the ring has lost some of them."""
        first = self._first()
        if number < first - 1:
            return None
        skipped = number + 1 - first
        if skipped >= len(self._ring):
            return []
        count = min(MOST_IN_ONE, len(self._ring) - skipped)
        if skipped > len(self._ring) // 2:  # a deque is quick at its ends
            ends = [self._ring[-1 - i] for i in range(len(self._ring) - skipped)][::-1]
            return ends[:count]
        return [self._ring[skipped + i] for i in range(count)]

    def piece(
        self, position: int, prefixes: tuple[str, ...], together: bool
    ) -> tuple[bytes, int] | None:
        """Returns what is to be sent behind `position`, and the new position; None as in `since`."""
        everything = prefixes == ("",)
        behind, piece, reached = self._pieces.get(together, (0, b"", 0))
        if everything and behind == position and reached == self._number:
            return piece, reached
        told = self.since(position)
        if not told:
            return None if told is None else (b"", position)
        last = told[-1].number
        heard = [one for one in told if not one.name or one.name.startswith(prefixes)]
        if not heard or not together:
            piece = b"".join([one.data for one in heard])
        else:
            pairs = ",".join([f'["{one.kind}",{one.text}]' for one in heard])
            piece = event("events", f"[{pairs}]", self.cursor(last))
        if everything:
            self._pieces[together] = (position, piece, last)
        return piece, last

    def _first(self) -> int:
        return self._number - len(self._ring) + 1

    def _watches(self) -> bool:
        return self._before is not None

    @property
    def looked(self) -> bool:
        """Whether there was a look at the store since it is watched."""
        return self._before is not None or bool(self._away)

    # The watching.

    async def _run(self) -> None:
        try:
            while self._attended():
                began = asyncio.get_running_loop().time()
                await self._look()
                spent = asyncio.get_running_loop().time() - began
                await asyncio.sleep(max(self._look_every - spent, self._look_every / 4))
        finally:
            # What happens from now on is not seen: an id of before leads to a reset.
            self._before = None
            self._renewals.clear()
            self._interrupted = True
        self._routine = None  # not where it failed, or was cancelled: then it begins anew by itself

    def _attended(self) -> bool:
        return bool(self._listeners) or asyncio.get_running_loop().time() < self._left_at + LINGER

    async def _look(self) -> None:
        store = self._store
        self.looks += 1
        if self._interrupted:
            self._interrupted = False
            self._ring.clear()
            self._number += 1  # whoever listens has missed something, perhaps: this is in no ring
        try:
            states = await store.list("")
        except LockError as error:
            if not self._away:
                self._away = str(error)
                self._add("unreachable", "", {"detail": self._away})
            await self._wake()  # told even if it failed: who hears nothing takes us for gone
            return
        now = store.now()
        if self._before is None:
            self._began = self.wall()
            self._ring.clear()
        if self._away:
            self._away = ""
            self._add("reached", "", {})
        if self._before is not None:
            for kind, name, view in self._differences(self._before, states, now):
                self._add(kind, name, view)
        self._note_renewals(states, now)
        self._before, self._looked_at = states, now
        await self._wake()

    def _differences(
        self, before: Sequence[LockState], states: Sequence[LockState], now: float
    ) -> Iterator[tuple[str, str, View]]:
        for sighting in sightings(before, states):
            kind, one = sighting.kind, sighting.participant
            assert one is not None
            if kind == ENDED:
                kind = self._ending(sighting.name, one, now)
            elif kind == CHANGED:
                kind = "changed"
            view = participant_view(one)
            if sighting.state is not None:
                view["kind"] = sighting.state.kind
                view["capacity"] = sighting.state.capacity
                view["holding"] = len(sighting.state.holders)
                view["waiting"] = len(sighting.state.waiters)
            yield kind, sighting.name, view

    def _ending(self, name: str, one: Participant, now: float) -> str:
        """Returns how a lease has ended, as far as can be told from outside."""
        latest = self._looked_at - 1.0
        if self._store.forced.get(name, -inf) >= latest:
            return "forced"
        if self._store.recalled.get(one.owner, -inf) >= latest:
            return "forced"  # through another process: a store that recalls tells all of them
        return "expired" if self._looked_at + one.remaining <= now else "released"

    def _note_renewals(self, states: Sequence[LockState], now: float) -> None:
        known, self._renewals = self._renewals, {}
        for state in states:
            for one in state.holders:
                ends = now + one.remaining
                key = state.name, one.owner
                told, seen, most = known.get(key) or Renewals(ends, ends, 0.0)
                most = max(most, one.remaining)
                left = seen - self._looked_at
                late = ends > seen + 0.1 and left < most * LATE_BELOW
                if late:
                    self._add("late", state.name, {**participant_view(one), "left": left})
                if ends > told + 0.1 and (late or told - now < most * TOLD_BELOW):
                    self._add("renewed", state.name, participant_view(one))
                    told = ends
                self._renewals[key] = Renewals(told, ends, most)

    def _add(self, kind: str, name: str, view: View) -> None:
        self._number += 1
        at = self.wall()
        view = {"name": name, "at": at, **view} if name else {"at": at, **view}
        text = dumps(view)
        data = event(kind, text, self.cursor(self._number))
        self._ring.append(Told(self._number, kind, name, at, view, text, data))

    async def _wake(self) -> None:
        """Wakes all listeners that have something to send, a few at a time."""
        for i, stream in enumerate(list(self._listeners)):
            stream.signal.set()
            if i % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
