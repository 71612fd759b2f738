"""One write for an answer: its head goes out together with its body.

uvicorn takes the head of an answer and its body one after the other, checks each header, and writes two
packets, which wakes the client twice. Nearly all answers of the service are whole when they are sent,
and their headers are its own. So `send` of a request can also send such an answer in one step. Software
between the service and its server that has a `send` of its own is not passed by: it has no such step.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from .answers import Application, Message, Receive, Scope, Send
from .pipelining import PipelinedProtocol


class WholeSend:
    """`send` of a request, which can send a whole answer too."""

    __slots__ = ("_cycle", "_send")

    def __init__(self, send: Send, cycle: RequestResponseCycle) -> None:
        self._send = send
        self._cycle = cycle

    def __call__(self, message: Message) -> Awaitable[None]:
        return self._send(message)

    def whole(self, status: int, headers: bytes, body: bytes) -> bool:
        """Sends an answer as two messages of ASGI would; False if it has to be sent by those.

        `headers` are the lines of its headers, with the length of its body, which is not empty.
        """
        cycle = self._cycle
        if (
            cycle.response_started
            or cycle.disconnected
            or not cycle.keep_alive
            or cycle.flow.write_paused
        ):
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        first = [b"%b: %b\r\n" % pair for pair in cycle.default_headers]
        cycle.transport.write(b"".join((STATUS_LINE[status], *first, headers, b"\r\n", body)))
        cycle.message_event.set()
        cycle.on_response()
        return True


class OneWriteProtocol(PipelinedProtocol):
    """A connection whose answers go out in one write each, where they are whole."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.app = cast(Any, _with_whole_send(cast(Application, self.app)))


def _with_whole_send(app: Application) -> Application:
    """Returns `app` as one whose `send` can send a whole answer."""

    def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        cycle = getattr(send, "__self__", None)
        if isinstance(cycle, RequestResponseCycle):
            send = WholeSend(send, cycle)
        return app(scope, receive, send)

    return call
