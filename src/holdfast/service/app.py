"""The application: an ASGI callable, for `holdfast serve` or for any other server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.routing import Router

from . import page
from .answers import Application, Receive, Scope, Send
from .authority import Authority
from .endpoints import Endpoint, NotFound
from .hooks import Hooks
from .operations import Operation
from .paths import Paths
from .service import Service
from .settings import Settings
from .tables import operations_of

Middleware = Callable[[Application], Application]
"""Wraps an ASGI application in another."""


class App:
    """The service as an ASGI application."""

    def __init__(
        self,
        service: Service,
        middleware: Sequence[Middleware] = (),
        operations: Sequence[Operation] = (),
    ) -> None:
        self.service = service
        """The service behind the application; `service.begin_stop()` ends its waits."""
        service.operations = (*operations_of(service.settings), *operations)
        self._app = _router(service, service.operations)
        for wrap in reversed(middleware):
            self._app = wrap(self._app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.begin(scope, receive, send)

    def begin(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Does what calling the application does, for a server that need not ask whether it is one."""
        if scope["type"] == "http":
            # Routes are matched on what was sent: a name may have a slash in it, as %2F.
            raw = scope.get("raw_path")
            if raw is not None:
                scope["path"] = raw.partition(b"?")[0].decode("latin-1")
        return self._app(scope, receive, send)


def create_app(
    settings: Settings,
    *,
    authority: Authority | None = None,
    hooks: Hooks | None = None,
    middleware: Sequence[Middleware] = (),
    operations: Sequence[Operation] = (),
) -> App:
    """Returns the service as an ASGI application.

    `authority` says who may do what; without one everybody may do everything. `hooks` has the listeners
    for metrics and logs. `middleware` wraps the application, the first one outermost. `operations` can
    be asked for beside those that every service has.
    """
    return App(Service(settings, authority, hooks), middleware, operations)


def _router(service: Service, operations: Sequence[Operation]) -> Application:
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    endpoints = {path: Endpoint(service, some) for path, some in by_path.items()}

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        await service.open()
        try:
            yield
        finally:
            await service.close_in_time()

    others = Router(
        list(page.routes()),
        redirect_slashes=False,
        default=NotFound(service),
        lifespan=lifespan,
    )
    return Paths(endpoints, others)
