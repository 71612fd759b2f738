"""Pipelining: requests that a client sends before the one before them was answered.

uvicorn stops reading while such a request waits for its turn, and so does not notice that the client
goes away; and if it did, it would tell the last request only. A wait for a lock would go on for nobody.
Here reading goes on, up to a bound, and the request that is carried out is told.
"""

from __future__ import annotations

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MOST_REQUESTS = 128
"""Requests that may wait for their turn on one connection. One with more is cut."""


class PipelinedProtocol(HttpToolsProtocol):
    """A connection whose end is noticed though requests wait for their turn on it."""

    _current: RequestResponseCycle | None = None
    """The request that is carried out; or that was, if no other has come."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if not self.pipeline:
            self._current = self.cycle

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
        super().data_received(data)
        if not self.pipeline or self.transport.is_closing():
            return
        if len(self.pipeline) > MOST_REQUESTS or len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.transport.abort()
        else:
            self.flow.resume_reading()
