"""`/metrics`: the figures of the library, from the verbs that pass; and those of HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from ..metrics.families import Counter, Histogram, counters, gauges, histograms
from ..metrics.groups import Rule
from ..metrics.metrics import Metrics
from ..stores._async.contract import Backend
from .answers import Answer
from .lease_watch import LeaseWatch, watched
from .problems import Problem

if TYPE_CHECKING:
    from .call import Call
    from .service import Service

REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0)


class ServiceMetrics(Metrics):
    """The figures of one service. All of them are counted in its event loop."""

    def __init__(self, service: Service, *, group: Rule | None = None, groups: int = 20) -> None:
        super().__init__(group=group, groups=groups)
        self._requests = counters(
            "holdfast_http_requests_total",
            "Requests that have ended, by the operation of the API and the status of the answer.",
            "operation",
            "status",
        )
        self._durations = histograms(
            "holdfast_http_request_seconds",
            "Seconds from the receipt of a request to the end of its answer. Held requests and "
            "streams take as long as they wait.",
            REQUEST_BUCKETS,
            "operation",
        )
        self._held = gauges("holdfast_http_held_requests", "Requests that wait for a lock now.")
        self._streams = gauges("holdfast_http_streams", "Listeners to events and wake-ups now.")
        self.families += [self._requests, self._durations, self._held, self._streams]
        self._by_answer: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._service = service
        self._watches: WeakSet[LeaseWatch] = WeakSet()
        service.hooks.wrap = self.wrap

    def wrap(self, backend: Backend) -> Backend:
        """Returns a backend of the service as one that is watched."""
        watch = LeaseWatch(backend.clock, self.count)
        self._watches.add(watch)
        return watched(backend, watch, self.count_call)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._by_answer.clear()

    def count_request(self, operation: str, status: int, duration: float) -> None:
        """Counts a request that has ended; `operation` is empty if there is none at its path."""
        with self._mutex:
            known = self._by_answer.get((operation, status))
            if known is None:
                title = operation or "none"
                known = self._requests.of(title, str(status)), self._durations.of(title)
                self._by_answer[operation, status] = known
            counter, histogram = known
            counter.value += 1
            histogram.observe(duration)

    def _measure(self) -> None:
        super()._measure()
        for watch in list(self._watches):
            self._add(self._leases, watch.names(held=True))
            self._add(self._waiters, watch.names(held=False))
        self._held.of().value = self._service.waiting
        self._streams.of().value = len(self._service.streams)


async def metrics(call: Call) -> Answer:
    """Returns the metrics."""
    service = call.service
    if not service.authority.may_see_metrics(call.caller):
        raise Problem("forbidden", f"{call.caller.title} may not see metrics")
    accept = next((value for name, value in call.scope["headers"] if name == b"accept"), b"")
    wanted = accept.decode("latin-1")
    text = service.metrics.text(wanted).encode()
    return Answer(200, text, media_type=service.metrics.content_type(wanted).encode())
