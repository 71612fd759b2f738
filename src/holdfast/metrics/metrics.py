"""`Metrics`: counts what happens to leases, and shows it to Prometheus.

It hears of everything by events, so it costs a manager nothing that it does not watch. Its mutex is
one that may be entered again: a signal's handler may release a lease while an event is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import RLock
from typing import Any, Protocol
from weakref import WeakSet, finalize, ref

from .. import forks
from ..errors import BackendUnavailable, LockError, StaleToken
from ..events import Call, CallListener, Event, Listener, refusals
from . import exposition, losses
from .exposition import Shown
from .families import Family, Gauge, counters, gauges, histograms
from .groups import Groups, Rule

WAIT_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
HOLD_BUCKETS = (
    *(0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0),
    *(900.0, 3600.0, 14400.0, 86400.0),
)
CALL_BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)


class Manager(Protocol):
    """The part of `Locks` that is watched, of either world."""

    def on_event(self, listener: Listener) -> Callable[[], None]: ...
    def on_call(self, listener: CallListener) -> Callable[[], None]: ...
    @property
    def _live(self) -> Any: ...


class Metrics:
    """The counts of what happens to the leases of watched managers, and at this process's fences.

    Threads and event loops may share it. A forked child begins at zero.
    """

    def __init__(self, *, group: Rule | None = None, groups: int = 20) -> None:
        """`group` tells locks apart: a separator, such as `":"` (the group is what stands before it in
        the name), or a function from a lock's name to its group. Only the first `groups` are told
        apart, the rest is `other`. Without it there is no such label.
        """
        self._groups = Groups(group, groups)
        label = () if group is None else ("group",)
        self._attempts = counters(
            "holdfast_attempts_total",
            "Attempts to get a lock, by how they ended.",
            "outcome",
            *label,
        )
        self._waits = histograms(
            "holdfast_wait_seconds",
            "Seconds from asking for a lock until it was granted or given up.",
            WAIT_BUCKETS,
            "outcome",
            *label,
        )
        self._holds = histograms(
            "holdfast_hold_seconds",
            "Seconds from the grant of a lease to its end.",
            HOLD_BUCKETS,
            *label,
        )
        self._leases = gauges("holdfast_leases", "Leases that are held now.", *label)
        self._waiters = gauges("holdfast_waiters", "Attempts that wait in a queue now.", *label)
        self._renewals = counters(
            "holdfast_renewals_total",
            "Renewals of leases: in time, late (less than half of the TTL was left), or unanswered.",
            "outcome",
            *label,
        )
        self._losses = counters(
            "holdfast_leases_lost_total",
            "Leases that ended while they were in use, by the reason.",
            "reason",
            *label,
        )
        self._failed_releases = counters(
            "holdfast_releases_failed_total",
            "Releases that the store did not answer, so that the TTL frees the lock.",
            *label,
        )
        self._forced = counters(
            "holdfast_forced_releases_total", "Locks that were released by force.", *label
        )
        self._refused = counters(
            "holdfast_stale_writes_refused_total",
            "Writes that a fence of this process refused, by the reason.",
            "reason",
        )
        self._calls = histograms(
            "holdfast_store_call_seconds",
            "Seconds that the store took for a call, answered or not.",
            CALL_BUCKETS,
            "verb",
        )
        self._errors = counters(
            "holdfast_store_errors_total",
            "Calls to the store that failed: it was unavailable, or refused.",
            "verb",
            "error",
        )
        self.families: list[Family[Any]] = [
            self._attempts,
            self._waits,
            self._holds,
            self._leases,
            self._waiters,
            self._renewals,
            self._losses,
            self._failed_releases,
            self._forced,
            self._refused,
            self._calls,
            self._errors,
        ]
        """All families, in the order in which they are shown."""
        self._mutex = RLock()
        self._managers: WeakSet[Manager] = WeakSet()
        self._by_group: dict[str, _Group] = {}
        self._by_verb: dict[str, Any] = {}
        forks.survive(self)
        self._begin()
        me = ref(self)

        def refused(error: StaleToken) -> None:
            metrics = me()
            if metrics is not None:
                metrics.refused(error)

        finalize(self, refusals.add(refused))

    def watch(self, locks: Manager) -> Callable[[], None]:
        """Counts what happens through this manager from now on; returns how to stop."""
        stop_events = locks.on_event(self)
        stop_calls = locks.on_call(self.called)
        self._managers.add(locks)

        def stop() -> None:
            stop_events()
            stop_calls()
            self._managers.discard(locks)

        return stop

    # What is told.

    def __call__(self, event: Event) -> None:
        """Counts an event: a listener for `on_event`, where `watch` is too much."""
        kind, name, _, _, duration, _, detail = event
        self.count(kind, name, duration, detail)

    def count(self, kind: str, name: str, duration: float, detail: str = "") -> None:
        """Counts what happened to a lease of the lock `name`, in the words of `holdfast.events`."""
        with self._mutex:
            label = self._groups.of(name)
            group = self._by_group.get(label)
            if group is None:
                group = self._by_group[label] = _Group(self, label)
            if kind == "acquired":
                group.waited.observe(duration)
                (group.after_waiting if detail else group.at_once).value += 1
            elif kind == "released":
                group.held.observe(duration)
            elif kind == "renewed":
                (group.late if detail else group.renewed).value += 1
            elif kind == "timed_out":
                if detail == "busy":
                    group.busy.value += 1
                else:
                    group.gave_up.observe(duration)
                    group.timed_out.value += 1
            elif kind == "lost":
                group.held.observe(duration)
                self._losses.of(losses.reason_of(detail), *group.labels).value += 1
            elif kind == "uncertain":
                group.unanswered.value += 1
            elif kind in ("failed", "interrupted"):
                self._attempts.of(kind, *group.labels).value += 1
            elif kind == "release_failed":
                self._failed_releases.of(*group.labels).value += 1
            elif kind == "forced":
                self._forced.of(*group.labels).value += 1

    def called(self, call: Call) -> None:
        """Counts a call to the store: a listener for `on_call`."""
        verb, duration, _, error = call
        self.count_call(verb, duration, error)

    def count_call(self, verb: str, duration: float, error: BaseException | None = None) -> None:
        """Counts a call to the store by its verb, and by the error with which it ended."""
        with self._mutex:
            histogram = self._by_verb.get(verb)
            if histogram is None:
                histogram = self._by_verb[verb] = self._calls.of(verb)
                self._errors.of(verb, "unavailable")
                self._errors.of(verb, "refused")
            histogram.observe(duration)
            if isinstance(error, LockError):  # else its caller was interrupted
                word = "unavailable" if isinstance(error, BackendUnavailable) else "refused"
                self._errors.of(verb, word).value += 1

    def refused(self, error: StaleToken) -> None:
        """Counts a refusal of a fence."""
        with self._mutex:
            self._refused.of(_REFUSALS.get(error.reason, "other")).value += 1

    # What is shown.

    def text(self, accept: str = "") -> str:
        """Returns all figures as text, in the format of Prometheus.

        With the `Accept` header of a client that prefers it, in that of OpenMetrics; the header that
        goes with the text is `content_type(accept)`.
        """
        openmetrics = exposition.content_type(accept) == exposition.OPENMETRICS
        return exposition.text_of(self.shown(), openmetrics)

    content_type = staticmethod(exposition.content_type)

    def collect(self) -> Iterator[Any]:
        """Yields all figures to a registry of `prometheus_client`, in which this is registered."""
        return exposition.client_families(self.shown())

    def describe(self) -> Sequence[Any]:
        """Returns nothing: `prometheus_client` asks for this lest it collects to find names."""
        return ()

    def shown(self) -> list[Shown]:
        """Returns all families, with what they have at this moment."""
        forks.current()  # begins afresh in a child that Python was not told of
        with self._mutex:
            self._measure()
            return [(family, list(family.samples())) for family in self.families]

    def _measure(self) -> None:
        """Looks how many leases are held, and how many wait."""
        for family in (self._leases, self._waiters):
            for figure in family.figures():
                figure.value = 0
            for group in self._by_group.values():
                family.of(*group.labels)
        for manager in list(self._managers):
            session = manager._live
            if session is None or session.closed:
                continue
            self._add(self._leases, [hold.name for hold in list(session.leases.values())])
            waiters = list(session.waiters.values())
            self._add(self._waiters, [waiter._ticket.name for waiter in waiters])

    def _add(self, family: Family[Gauge], names: Iterable[str]) -> None:
        """Counts each of these locks in its group."""
        for name in names:
            label = self._groups.of(name)
            family.of(*((label,) if family.labels else ())).value += 1

    # Its beginning.

    def _begin(self) -> None:
        if not self._attempts.labels[1:]:
            self._by_group[""] = _Group(self, "")
        for reason in _REFUSALS.values():
            self._refused.of(reason)

    def _after_fork(self) -> None:
        self._mutex = RLock()
        self._by_group.clear()
        self._by_verb.clear()
        for family in self.families:
            family.clear()
        self._begin()


_REFUSALS = {
    "stale": "stale",
    "used": "used",
    "other-lock": "other_lock",
    "store-lost-memory": "store_lost_memory",
}


class _Group:
    """The figures of one group that most events touch."""

    __slots__ = (
        "after_waiting",
        "at_once",
        "busy",
        "gave_up",
        "held",
        "labels",
        "late",
        "renewed",
        "timed_out",
        "unanswered",
        "waited",
    )

    def __init__(self, metrics: Metrics, label: str) -> None:
        attempts, renewals, waits = metrics._attempts, metrics._renewals, metrics._waits
        labels = self.labels = (label,) if metrics._holds.labels else ()
        self.at_once = attempts.of("at_once", *labels)
        self.after_waiting = attempts.of("after_waiting", *labels)
        self.timed_out = attempts.of("timed_out", *labels)
        self.busy = attempts.of("busy", *labels)
        self.waited = waits.of("granted", *labels)
        self.gave_up = waits.of("timed_out", *labels)
        self.held = metrics._holds.of(*labels)
        self.renewed = renewals.of("in_time", *labels)
        self.late = renewals.of("late", *labels)
        self.unanswered = renewals.of("unanswered", *labels)
        # From the beginning, at zero: a counter that appears at 1 has not risen, for Prometheus.
        attempts.of("failed", *labels)
        attempts.of("interrupted", *labels)
        for word in losses.WORDS:
            metrics._losses.of(word, *labels)
        metrics._failed_releases.of(*labels)
        metrics._forced.of(*labels)
