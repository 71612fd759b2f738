"""Spans for OpenTelemetry: one for each wait, and one for as long as a lease is held.

    holdfast.tracing.instrument(locks)

A span is a child of the one that was current where the lock was asked for: in that thread, or that
task. It needs the package `opentelemetry-api` (`pip install 'holdfast-locks[otel]'`); what becomes
of the spans is up to the SDK that the program has set up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, Span, Status, StatusCode, Tracer, TracerProvider

from . import forks
from ._version import __version__
from .events import Event, Listener
from .guarantees import Guarantees

NAME = "holdfast.lock.name"
TOKEN = "holdfast.lock.token"
OWNER = "holdfast.lock.owner"
OUTCOME = "holdfast.outcome"
STORE = "holdfast.store"

WAIT, HOLD = "lock wait", "lock hold"


class Manager(Protocol):
    """The part of `Locks` that is traced, of either world."""

    @property
    def guarantees(self) -> Guarantees: ...

    def on_event(self, listener: Listener) -> Callable[[], None]: ...


class OwnedLease(Protocol):
    """The part of a lease by which its span is found, of either world."""

    @property
    def owner(self) -> str: ...


def instrument(
    locks: Manager, *, tracer_provider: TracerProvider | None = None
) -> Callable[[], None]:
    """Makes spans of what happens through this manager from now on; returns how to stop."""
    tracer = trace.get_tracer("holdfast", __version__, tracer_provider)
    tracing = _Tracing(tracer, locks.guarantees.store)
    stop_listening = locks.on_event(tracing)

    def stop() -> None:
        stop_listening()
        tracing.end_all()

    return stop


def hold_span(lease: OwnedLease) -> Span:
    """Returns the span for as long as this lease is held; one that records nothing if there is none.

    With `opentelemetry.trace.use_span(…)` it becomes the parent of what happens under the lease.
    """
    for tracing in list(_live):
        span = tracing.holds.get(lease.owner)
        if span is not None:
            return span
    return INVALID_SPAN


class _Tracing:
    """The listener: it turns events into spans, with the times that they tell."""

    def __init__(self, tracer: Tracer, store: str) -> None:
        self._tracer = tracer
        self._store = store
        self.holds: dict[str, Span] = {}
        """The spans of leases that are held, by owner."""
        _live.add(self)
        forks.survive(self)

    def __call__(self, event: Event) -> None:
        kind = event.kind
        if kind == "acquired":
            self._wait(event, "after_waiting" if event.detail else "at_once")
            span = self._begin(HOLD, event, event.at)
            if span.is_recording():
                self.holds[event.owner] = span
        elif kind in ("timed_out", "failed", "interrupted"):
            self._wait(event, "busy" if event.detail == "busy" else kind)
        elif kind in ("released", "lost", "release_failed"):
            self._end(event)
        elif kind == "uncertain":
            span = self.holds.get(event.owner, INVALID_SPAN)
            span.add_event("renewal unanswered", {"reason": event.detail}, _nanoseconds(event.at))
        elif kind == "forced":
            attributes = {NAME: event.name, "detail": event.detail}
            trace.get_current_span().add_event("lock forced", attributes, _nanoseconds(event.at))

    def _wait(self, event: Event, outcome: str) -> None:
        span = self._begin(WAIT, event, event.at - event.duration)
        span.set_attribute(OUTCOME, outcome)
        if outcome == "failed":
            span.set_status(Status(StatusCode.ERROR, event.detail))
        span.end(_nanoseconds(event.at))

    def _begin(self, title: str, event: Event, at: float) -> Span:
        attributes: dict[str, str | int] = {NAME: event.name, STORE: self._store}
        if event.owner:
            attributes[OWNER] = event.owner
        if event.token:
            attributes[TOKEN] = event.token
        return self._tracer.start_span(title, attributes=attributes, start_time=_nanoseconds(at))

    def _end(self, event: Event) -> None:
        span = self.holds.pop(event.owner, None)
        if span is None:
            return
        span.set_attribute(OUTCOME, event.kind)
        if event.kind != "released":
            title = "lease lost" if event.kind == "lost" else "release failed"
            span.add_event(title, {"reason": event.detail}, _nanoseconds(event.at))
            span.set_status(Status(StatusCode.ERROR, event.detail))
        span.end(_nanoseconds(event.at))

    def end_all(self) -> None:
        """Ends the spans of what is still held, because nobody listens any more."""
        while self.holds:
            _, span = self.holds.popitem()
            span.end()

    def _after_fork(self) -> None:
        self.holds.clear()  # the parent holds those


_live: WeakSet[_Tracing] = WeakSet()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
