"""All watches of one manager on one stream, mended when it breaks.

A watch goes on from the revision behind the last one that was heard, on whichever member answers,
so nothing is missed. Where that is not possible, because etcd has compacted those revisions or
nothing was heard yet, it starts from what is now, and the watcher is told from which revision on:
it has to look for itself at what was before.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock

from ...._runtime.aio import Routine, Signal
from ....clock import Clock
from ....errors import LockError
from ..wire import messages
from ..wire.aio import Stream, Wire
from ..wire.failures import Failure
from ..wire.messages import Event

PAUSE, LONGEST_PAUSE = 0.02, 0.5

Heard = Callable[[list[Event]], None]
Started = Callable[[int], None]
"""A function that is told the revision up to which nothing was heard."""


class Watch:
    """The changes of one key, or of a range of keys, that are told to `heard`."""

    __slots__ = (
        "began",
        "confirmed",
        "deletions_only",
        "end",
        "heard",
        "id",
        "key",
        "next",
        "started",
    )

    def __init__(
        self,
        key: bytes,
        end: bytes,
        start: int,
        deletions_only: bool,
        heard: Heard,
        started: Started,
    ) -> None:
        self.id = 0
        self.key = key
        self.end = end
        self.next = start
        self.deletions_only = deletions_only
        self.heard = heard
        self.started = started
        self.confirmed = False
        """True while etcd has confirmed it on the stream that is open."""
        self.began = 0
        """The revision up to which nothing was heard, if it started from what was then."""


class Watches:
    """The watches on one stream."""

    def __init__(self, wire: Wire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock
        self._watches: dict[int, Watch] = {}
        self._next = 0
        """The number of the next watch on this stream. Numbers begin anew with each stream, at 0, which
        is how etcd's proxy numbers them, whatever it is told."""
        self._stream: Stream | None = None
        self._mending: Routine | None = None
        self._signal = Signal(clock)
        self._pause = PAUSE
        self._closed = False
        self._mutex = RLock()

    def add(
        self,
        key: bytes,
        end: bytes,
        start: int,
        heard: Heard,
        started: Started,
        *,
        deletions_only: bool = False,
    ) -> Watch:
        """Adds a watch of `key`, or of all up to `end`, from the revision `start` on (0: now)."""
        watch = Watch(key, end, start, deletions_only, heard, started)
        with self._mutex:
            if not self._closed:
                self._number(watch)
                self._send(watch)
        return watch

    def drop(self, watch: Watch) -> None:
        """Ends a watch."""
        with self._mutex:
            if self._watches.pop(watch.id, None) is not None and self._stream is not None:
                self._stream.send(messages.unwatch(watch.id))

    def follow(self) -> None:
        """Moves the stream to the member that calls go to now: the present one may be no good."""
        with self._mutex:
            stream = self._stream
            if stream is None or stream.endpoint == self._wire.endpoint or self._closed:
                return
            self._stream = None
            self._mend(stream)

    async def close(self) -> None:
        """Ends all watches."""
        with self._mutex:
            self._closed = True
            stream, self._stream = self._stream, None
            self._watches.clear()
            mending = self._mending
        self._signal.set()
        if mending is not None:
            await mending.join()
        if stream is not None:
            await stream.close()

    # All below is called with the mutex held, or takes it.

    def _number(self, watch: Watch) -> None:
        watch.id = self._next
        self._next += 1
        self._watches[watch.id] = watch

    def _send(self, watch: Watch) -> None:
        if self._stream is None and self._mending is None:
            try:
                self._open()
            except Failure:
                self._mend(None)
            return
        if self._stream is not None:
            self._stream.send(_request(watch))

    def _open(self) -> None:
        """Opens a new stream, with all the watches there are."""
        box: list[Stream] = []

        def heard(message: bytes) -> None:
            self._heard(message)

        def ended(failure: Failure) -> None:
            with self._mutex:
                if box and self._stream is box[0]:
                    self._stream = None
                    self._wire.turn_from(failure.endpoint)
                    self._mend(box[0])

        watches, self._watches = self._watches, {}
        self._next = 0
        for watch in watches.values():
            self._number(watch)
        requests = [_request(watch) for watch in watches.values()]
        stream = self._wire.watch(requests, heard, ended)
        box.append(stream)
        self._stream = stream

    def _heard(self, message: bytes) -> None:
        answer = messages.parse_watched(message)
        with self._mutex:
            watch = self._watches.get(answer.watch_id)
            if watch is None:
                if answer.cancelled and answer.watch_id < 0:
                    self._begin_anew()  # refused; newer etcds do not say which
                return  # dropped meanwhile
            began = 0
            if answer.created and not answer.cancelled:
                watch.confirmed = True
                self._pause = PAUSE
                if watch.next == 0:
                    began = watch.began = answer.revision
                    watch.next = began + 1
            if answer.events:
                watch.next = answer.events[-1].key.changed + 1
            if answer.cancelled:
                watch.confirmed = False
                if answer.compacted:
                    watch.next = 0
                    del self._watches[answer.watch_id]
                    self._number(watch)
                if not answer.compacted:
                    self._begin_anew()
                elif self._stream is not None:
                    self._stream.send(_request(watch))
        if answer.events:
            watch.heard(answer.events)
        if began:
            watch.started(began)

    def _begin_anew(self) -> None:
        """Opens another stream, in a while: our token has expired, or the member is going."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._mend(stream)

    def _mend(self, broken: Stream | None) -> None:
        for watch in self._watches.values():
            watch.confirmed = False
        if self._mending is None and not self._closed:

            async def mend() -> None:
                await self._reopen(broken)

            self._mending = Routine(mend, "holdfast-mend")

    async def _reopen(self, broken: Stream | None) -> None:
        if broken is not None:
            await broken.close()
        while True:
            await self._signal.wait(self._clock.now() + self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            with self._mutex:
                if self._closed:
                    return
                try:
                    self._open()
                except (Failure, LockError):
                    continue
                self._mending = None
            return


def _request(watch: Watch) -> bytes:
    return messages.watch(
        watch.id, watch.key, watch.end, watch.next, deletions_only=watch.deletions_only
    )
