"""Endpoints: from a path and a method to an operation, and from its end to an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from time import monotonic

from ..errors import LockError
from ..events import report
from ..model import quick_new
from .answers import Answer, Receive, Scope, Send, send_answer
from .call import Call
from .hooks import Finished
from .operations import Operation
from .problems import Problem, out_of_descriptors, problem_of
from .service import Service
from .waiter import ClientGone

CLIENT_GONE = 499
"""The status, for the access log, of a request whose client went away."""


class Endpoint:
    """All operations at one path."""

    def __init__(self, service: Service, operations: Sequence[Operation]) -> None:
        self._service = service
        self._operations: Mapping[str, Operation] = {one.method: one for one in operations}
        methods = {*self._operations, "OPTIONS"}
        looked_at = self._operations.get("GET")
        self._head = looked_at if looked_at is not None and looked_at.stream is None else None
        """The operation that HEAD asks for; a stream has no end that could be left out."""
        if self._head is not None:
            methods.add("HEAD")
        self._allow = ", ".join(sorted(methods)).encode()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        method: str = scope["method"]
        operation = self._head if method == "HEAD" else self._operations.get(method)
        if operation is not None:
            return self._carry_out(operation, scope, receive, send)
        if method == "OPTIONS":
            return self._finish(scope, send, Answer(204, None, ((b"allow", self._allow),)))
        problem = Problem(
            "method-not-allowed",
            f"{method[:20]} cannot be used here; there are: {self._allow.decode()}",
            headers=((b"allow", self._allow),),
        )
        return self._finish(scope, send, problem.answer())

    async def _finish(self, scope: Scope, send: Send, answer: Answer) -> None:
        began = monotonic()
        await send_answer(scope, send, answer)
        _tell(self._service, None, scope, answer.status, began, None, "")

    async def _carry_out(
        self, operation: Operation, scope: Scope, receive: Receive, send: Send
    ) -> None:
        service = self._service
        began = monotonic()
        call: Call | None = None
        status = CLIENT_GONE
        title = ""
        try:
            caller = service.authority.identify(scope) if not operation.public else None
            title = "" if caller is None else caller.title
            call = Call(service, operation, scope, receive, caller or NOBODY)
            answer = await _answer(service, operation, call, send)
        except Problem as problem:
            answer = problem.answer()
        except LockError as error:
            answer = problem_of(error, call.name or None if call is not None else None).answer()
        except ClientGone:
            answer = None
        except asyncio.CancelledError:
            if not service.stopping:
                raise
            # The time of a stop is over, and the store has not answered.
            detail = "the service stops, and does not know what became of this request"
            name = call.name or None if call is not None else None
            answer = Problem("stopping", detail, name=name).answer()
        except Exception as error:
            refused = out_of_descriptors(error)
            if refused is None:
                report(f"the service failed at {operation.id}", error)
                detail = (
                    "the service made a mistake, which its log tells; nothing is known of the lock"
                )
                refused = Problem("internal", detail)
            answer = refused.answer()
        if answer is not None:
            status = answer.status
            await send_answer(scope, send, answer)
        elif operation.stream is not None:
            status = 200
        _tell(service, operation, scope, status, began, call, title)


class Nobody:
    """The caller of what everybody may ask."""

    title = ""
    key = ""


NOBODY = Nobody()


async def _answer(service: Service, operation: Operation, call: Call, send: Send) -> Answer | None:
    """Returns the answer of an operation; None if it has sent one by itself."""
    if operation.public:
        call.query, call.store = {}, service.first_store
        assert operation.action is not None
        return await operation.action(call)
    if service.stopping:
        raise Problem("stopping", "the service is stopping", headers=((b"connection", b"close"),))
    authority = service.authority
    authority.begin(call.caller, "request")
    try:
        await call.read()
        if operation.stream is not None:
            await operation.stream(call, send)
            return None
        assert operation.action is not None
        return await operation.action(call)
    finally:
        authority.end(call.caller, "request")


def _tell(
    service: Service,
    operation: Operation | None,
    scope: Scope,
    status: int,
    began: float,
    call: Call | None,
    title: str,
) -> None:
    """Counts a request that was answered, or whose client went away, and tells the listeners."""
    operation_id = operation.id if operation is not None else ""
    duration = monotonic() - began
    service.metrics.count_request(operation_id, status, duration)
    if not service.hooks.finished:
        return
    client = scope.get("client")
    service.hooks.tell_finished(
        quick_new(
            Finished,
            (
                operation_id,
                scope["method"],
                scope["path"],
                status,
                duration,
                title,
                client[0] if client else "",
                call.store.namespace if call is not None and hasattr(call, "store") else "",
                call.name if call is not None else "",
            ),
        )
    )


class NotFound:
    """The end of every path that is not known."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = monotonic()
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        problem = Problem("not-found", "there is nothing at this path; see /openapi.json")
        await send_answer(scope, send, problem.answer())
        _tell(self._service, None, scope, problem.status, began, None, "")
