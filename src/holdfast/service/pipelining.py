"""Pipelining: requests that a client sends before the one before them was answered.

uvicorn stops reading while such a request waits for its turn, and so does not notice that the client
goes away; and if it did, it would tell the last request only. A wait for a lock would go on for nobody.
Here reading goes on, up to a bound, and the request that is carried out is told. The request beyond the
bound is refused in its turn, and is the last one: what comes behind it is read, so that the end of the
connection is noticed, and dropped.
"""

from __future__ import annotations

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .answers import Receive, Scope, Send, send_answer
from .problems import Problem

MOST_REQUESTS = 128
"""Requests that may wait for their turn on one connection."""


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request that came when too much waited for its turn, and ends the connection."""
    problem = Problem(
        "too-many",
        f"more than {MOST_REQUESTS} requests, or a body of more than {HIGH_WATER_LIMIT} bytes, waited "
        "on this connection for the answer to another; this request and those behind it were not "
        "carried out",
        headers=((b"connection", b"close"),),
    )
    await send_answer(scope, send, problem.answer())


class PipelinedProtocol(HttpToolsProtocol):
    """A connection whose end is noticed though requests wait for their turn on it."""

    _current: RequestResponseCycle | None = None
    """The request that is carried out; or that was, if no other has come."""
    _full = False
    """Whether the last request that waits for its turn is to be refused."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if not self.pipeline:
            self._current = self.cycle
        elif self._full:
            self.pipeline.popleft()  # it came behind the one that is to be refused
        elif len(self.pipeline) > MOST_REQUESTS:
            self._fill()

    def _fill(self) -> None:
        """Has the request that came last refused in its turn, and takes no other."""
        self._full = True
        self.pipeline[0] = self.cycle, _refuse  # type: ignore[assignment]

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._current = self.pipeline[-1][0]
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        current = self._current
        if current is not None and not current.response_complete:
            current.disconnected = True
            current.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._full:
            return
        super().data_received(data)
        if self.pipeline and not self.transport.is_closing():
            if len(self.cycle.body) > HIGH_WATER_LIMIT and not self._full:
                self._fill()
            self.flow.resume_reading()
