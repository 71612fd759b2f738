"""Beats of which any number run, and which send each entry once.

Each beat that finds an entry due asks for its slot, by `locks.once()`. The beat that gets it sends the
task, and the slot is kept until the entry is next due. The others ask again then. So there is no
leader, and no gap when a beat dies: the others are as ready as it was. A beat that dies between its
grant and the sending gives up its slot with its lease, and another one sends the task. A beat that
dies, or cannot reach the store, between the sending and keeping the slot gives it up as well, and the
task is sent twice.
"""

from __future__ import annotations

import heapq
import logging
from datetime import timedelta
from hashlib import sha256
from typing import Any

from celery.beat import PersistentScheduler, event_t
from celery.schedules import crontab, schedstate, solar

from ... import LockError, OnceLease
from .managers import locks_of
from .stopping import stops_put_off

log = logging.getLogger(__name__)

TTL = 30.0
"""Seconds after which another beat sends what a beat that died has not sent."""
PREFIX = "celery-beat:"
AGAIN = 1.0
"""Seconds until a store that did not answer is asked again."""
SLACK = 1.0
"""Seconds by which a slot ends before its entry is next due, at most: clocks run apart, and the beat
whose turn it is must not find its own slot taken."""


class OnceForAllBeats:
    """For a subclass of Celery's `Scheduler`, before it: of all beats, one sends each entry."""

    app: Any
    schedule: Any
    max_interval: float
    _heap: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._slots: dict[str, OnceLease] = {}
        """The slots that this beat has got, and whose tasks it is about to send."""
        self._refused: tuple[str, float] | None = None
        """The entry whose slot another beat has, and the seconds until it is asked for again."""
        self._sent = True
        super().__init__(*args, **kwargs)
        locks_of(self.app)  # raises where no store is named

    def is_due(self, entry: Any) -> Any:
        """Tells whether the entry is due and its slot ours; and in how many seconds to look again."""
        is_due, wait = super().is_due(entry)  # type: ignore[misc]
        if not is_due:
            return schedstate(is_due, wait)
        try:
            wait_for_slot = self._ask(entry)
        except LockError as error:
            log.error("beat: cannot ask whether %s was sent: %s", entry.name, error)
            wait_for_slot = AGAIN
        if wait_for_slot is None:
            return schedstate(True, wait)
        self._refused = entry.name, wait_for_slot
        return schedstate(False, wait_for_slot)

    def _ask(self, entry: Any) -> float | None:
        """Takes the entry's slot; or returns in how many seconds to ask again."""
        ours = self._slots.get(entry.name)
        if ours is not None and ours.held:
            return None
        locks = locks_of(self.app)
        name = f"{PREFIX}{self.app.main or ''}:{entry.name}:{mark_of(entry.schedule)}"
        period, slack = _period(entry)
        slot = locks.once(name, period, ttl=TTL)
        if slot is not None:
            self._slots[entry.name] = slot
            return None
        holders = locks.inspect(name).holders
        left = max(holder.remaining for holder in holders) if holders else 0.0
        if left > TTL:  # it was sent, and the slot is kept; else a beat is sending it, or has died
            log.info("beat: another one has sent %s", entry.name)
            _note_sent(entry, left + slack)
        return left + slack

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """Sends one task that is due, at most; returns the seconds until the next look."""
        self._refused = None
        delay = super().tick(*args, **kwargs)  # type: ignore[misc]
        if self._refused is None:
            return delay
        # Old releases of Celery would look at this entry again, and not at those behind it.
        name, wait = self._refused
        others = [event for event in self._heap if event[2].name != name]
        for entry in [event[2] for event in self._heap if event[2].name == name]:
            others.append(event_t(self._when(entry, wait), 5, entry))
        heapq.heapify(others)
        self._heap = others
        # If no other entry comes before it, its time is waited for: else the store would be asked
        # without a pause.
        return min(wait, self.max_interval) if others[0][2].name == name else 0

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Sends the task of an entry whose slot is ours. A signal to stop waits for that."""
        with stops_put_off():
            self._sent = True
            slot = self._slots.get(entry.name)
            if slot is not None and not slot.held and not self.is_due(entry).is_due:
                del self._slots[entry.name]
                log.warning(
                    "beat: the slot of %s has ended, so it is not sent from here", entry.name
                )
                return
            slot = self._slots.pop(entry.name, None)
            try:
                super().apply_entry(entry, producer=producer)  # type: ignore[misc]
            except BaseException:
                self._sent = False
                raise
            finally:
                if slot is not None:
                    _end(slot, self._sent)

    def apply_async(self, entry: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().apply_async(entry, *args, **kwargs)  # type: ignore[misc]
        except BaseException:
            self._sent = False
            raise

    def close(self) -> None:
        while self._slots:
            _end(self._slots.popitem()[1], sent=False)
        super().close()  # type: ignore[misc]


class BeatScheduler(OnceForAllBeats, PersistentScheduler):  # type: ignore[misc]
    """Celery's own scheduler, of which any number may run: of all, one sends each entry."""


def mark_of(schedule: Any) -> str:
    """Returns a short text that differs between schedules, and is the same in all processes.

    Schedules of a kind that Celery does not have are told apart by their class alone.
    """
    every = getattr(schedule, "run_every", None)
    parts: list[object] = [type(schedule).__qualname__]
    if isinstance(schedule, crontab):
        fields = "minute", "hour", "day_of_week", "day_of_month", "month_of_year"
        parts += [sorted(getattr(schedule, field)) for field in fields]
        parts.append(getattr(schedule.tz, "key", ""))
    elif isinstance(schedule, solar):
        parts += [schedule.event, float(schedule.lat), float(schedule.lon)]
    elif isinstance(every, timedelta):
        parts.append(every.total_seconds())
    return sha256(repr(parts).encode()).hexdigest()[:12]


def _period(entry: Any) -> tuple[float, float]:
    """Returns the seconds for which the slot is kept, and from then until the entry is next due."""
    schedule = entry.schedule
    until_due = float(schedule.remaining_estimate(schedule.now()).total_seconds())
    slack = min(SLACK, max(until_due, 0.1) / 10)
    return max(until_due, 0.1) - slack, slack


def _note_sent(entry: Any, next_due: float) -> None:
    """Notes that another beat has sent the task, and that it is due again in `next_due` seconds."""
    now = entry.default_now()
    every = getattr(entry.schedule, "run_every", None)
    entry.last_run_at = now if every is None else now + timedelta(seconds=next_due) - every


def _end(slot: OnceLease, sent: bool) -> None:
    try:
        if sent:
            slot.release()
        else:
            slot.give_back()
    except LockError as error:
        log.error("beat: the slot could not be %s: %s", "kept" if sent else "given back", error)
