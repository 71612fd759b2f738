"""FastAPI and Starlette: a lock for a request, and an election for as long as the application runs.

from holdfast.contrib.fastapi import lifespan, lock

app = FastAPI(lifespan=lifespan("redis://localhost:6379/0"))

@app.post("/invoices/{number:int}/pay")
async def pay(number: int, lease: Annotated[Lease, Depends(lock("invoice:{number}"))]):
    ...

The manager is `app.state.locks`. Only Starlette is needed.
"""

# Annotations are values here, not texts: FastAPI reads those of a dependency.

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Unpack

from .. import (
    BackendUnavailable,
    ConfigError,
    LeaseLost,
    LockError,
    LockTimeout,
    StaleToken,
    aio,
    checks,
)
from ..aio import Lease, Locks
from ..options import LockKeywords, options_of
from ..refusals import lacks
from ..stores.options import RedisClient, SqlAlchemyEngine, SqlAlchemyUrl, StoreOptions
from .leading import Work, leading

try:
    from starlette.exceptions import HTTPException, WebSocketException
    from starlette.requests import HTTPConnection
    from starlette.websockets import WebSocket, WebSocketState

    from .path_names import MARK, is_known, name_for, refuse_ambiguous, template_of
except ImportError as missing:
    raise ImportError(lacks(__name__, "Starlette or FastAPI", "fastapi")) from missing

__all__ = ["connected", "hold", "leading", "lifespan", "lock"]

TIMEOUT = 5.0
"""Seconds that a request waits for a lock, unless it is told otherwise."""
BUSY, UNAVAILABLE, UNPROCESSABLE = 409, 503, 422
TRY_AGAIN_LATER = 1013
"""The code by which a WebSocket that was accepted is closed, if its lock is not there for it."""


def lock(
    name: str | Callable[..., str],
    *,
    busy: int = BUSY,
    retry_after: int = 1,
    **options: Unpack[LockKeywords],
) -> Callable[..., AsyncIterator[Lease]]:
    """Returns a dependency that holds a lock during the request, and gives its lease.

    `name` is a template, whose fields are parameters of the path, with the values that the endpoint
    gets; or a function that returns the name, whose parameters FastAPI fills in and checks as those of
    an endpoint. See `hold` for the rest.
    """
    _check(busy, retry_after, options)
    fields = [] if callable(name) else template_of(name).fields
    if not callable(name) and not fields:
        checks.lock_name(template_of(name).fill({}))  # it is the same for every request

    async def dependency(holdfast_connection: HTTPConnection, **given: Any) -> AsyncIterator[Lease]:
        if fields and not is_known(holdfast_connection):
            raise ConfigError(
                "FastAPI does not say which parameters this endpoint has, so one thing might have two "
                "names; give lock() a function that returns the name"
            )
        if callable(name):
            filled = await _called(name, given)
        else:
            filled = name_for(holdfast_connection, name)
        async with _Holding(holdfast_connection, filled, busy, retry_after, options) as lease:
            yield lease

    # FastAPI asks for what the signature names.
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("holdfast_connection", keyword, annotation=HTTPConnection)
    ]  # a name that the user's function does not have
    if callable(name):
        parameters += _parameters(name)
    dependency.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    setattr(dependency, MARK, fields)
    return dependency


def hold(
    request: HTTPConnection,
    name: str,
    *,
    busy: int = BUSY,
    retry_after: int = 1,
    **options: Unpack[LockKeywords],
) -> AbstractAsyncContextManager[Lease]:
    """Holds a lock inside of `async with`, and answers for what can go wrong with it.

    `name` is a template, whose fields are parameters of the request's path. `options` are those of
    `locks.lock()`; `timeout` is 5 s. The errors are Starlette's `HTTPException`:

    - the lock was not granted in time: `busy`, which is 409 (423 is usual, too), with `Retry-After`;
    - the lease was lost: the body is cancelled, and it is 503, with `Retry-After`;
    - the store cannot be reached: 503, with `Retry-After`;
    - a fence refused the lease as stale: 409;
    - the path makes a name that no lock can have: 422.

    `request` may be a WebSocket. One that was accepted is closed with 1013 ("try again later"); of one
    that is closed already the error itself comes out.
    """
    _check(busy, retry_after, options)
    return _Holding(request, name_for(request, name), busy, retry_after, options)


class _Holding(AbstractAsyncContextManager[Lease]):
    """A lock that is held inside of `async with`.

    It is no generator: when a loop ends, it closes all generators side by side, and one that stands in
    the user's generator might be closed before that one leaves it.
    """

    def __init__(
        self,
        request: HTTPConnection,
        name: str,
        busy: int,
        retry_after: int,
        options: LockKeywords,
    ) -> None:
        self._request = request
        self._name = name
        self._busy = busy
        self._later = {"Retry-After": str(retry_after)}
        self._options = options
        self._lease: Lease | None = None

    async def __aenter__(self) -> Lease:
        if self._lease is not None:
            raise ConfigError("it was entered already; call hold() for each `async with`")
        try:
            checks.lock_name(self._name)
        except ConfigError:
            raise self._error(UNPROCESSABLE, "The path has a part that cannot be used.") from None
        options: LockKeywords = {"timeout": TIMEOUT, **self._options}
        wanted = _manager(self._request).lock(self._name, **options)
        try:
            lease = await wanted.acquire()
        except (LockTimeout, BackendUnavailable) as error:
            if self._over():
                raise
            if isinstance(error, BackendUnavailable):
                detail = "The locks cannot be reached. Try again later."
                raise self._error(UNAVAILABLE, detail) from error
            detail = "Another request is working on this. Try again later."
            raise self._error(self._busy, detail) from error
        self._lease = lease
        try:
            return await lease.__aenter__()
        except BaseException as error:
            self._lease = None
            with suppress(LockError):  # then it ends by itself
                await lease.release()
            self._answer(error, lease)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease, self._lease = self._lease, None
        if lease is None:
            raise ConfigError("it was not entered, so it cannot be left")
        try:
            await lease.__aexit__(kind, error, trace)
        except LeaseLost as lost:
            self._answer(lost, lease)
            raise
        self._answer(error, lease)

    def _answer(self, error: BaseException | None, lease: Lease) -> None:
        """Raises what is answered, if the error is about the lock, and somebody is there to hear it."""
        if self._over():
            return
        if isinstance(error, LeaseLost) and error.owner == lease.owner:
            detail = "The request lost its lock, and may have been done in part. Try again later."
            raise self._error(UNAVAILABLE, detail) from error
        if isinstance(error, StaleToken):
            detail = "A later request has worked on this."
            raise self._error(BUSY, detail) from error

    def _over(self) -> bool:
        """Returns whether the request is a WebSocket that either side has closed."""
        socket = self._request
        return isinstance(socket, WebSocket) and (
            WebSocketState.DISCONNECTED in (socket.application_state, socket.client_state)
        )

    def _error(self, status: int, detail: str) -> Exception:
        """Returns the error by which Starlette answers; a WebSocket is refused, or closed."""
        socket = self._request
        if isinstance(socket, WebSocket) and socket.application_state is WebSocketState.CONNECTED:
            return WebSocketException(TRY_AGAIN_LATER, detail)
        return HTTPException(status, detail, self._later if status != UNPROCESSABLE else None)


@asynccontextmanager
async def connected(
    app: Any,
    url: str | RedisClient | SqlAlchemyEngine | SqlAlchemyUrl | None = None,
    *,
    namespace: str = "holdfast",
    label: str = "",
    **options: Unpack[StoreOptions],
) -> AsyncIterator[Locks]:
    """Connects a manager, which is `app.state.locks` until the end. Arguments as for `connect()`.

    The application's routes are there by then: a lock whose name cannot be made from the types that a
    route declares raises `ConfigError`.
    """
    refuse_ambiguous(app)
    async with aio.connect(url, namespace=namespace, label=label, **options) as locks:
        app.state.locks = locks
        try:
            yield locks
        finally:
            del app.state.locks


def lifespan(
    url: str | RedisClient | SqlAlchemyEngine | SqlAlchemyUrl | None = None,
    *,
    leads: Mapping[str, Work] | None = None,
    namespace: str = "holdfast",
    label: str = "",
    **options: Unpack[StoreOptions],
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Returns a lifespan for an application: a manager, and what one process of many does.

    `leads`: names of elections, each with an async function that is run while this process leads (see
    `leading`). For a lifespan of your own, use `connected` and `leading` in it.
    """

    @asynccontextmanager
    async def alive(app: Any) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            manager = connected(app, url, namespace=namespace, label=label, **options)
            locks = await stack.enter_async_context(manager)
            for name, work in (leads or {}).items():
                await stack.enter_async_context(leading(locks, name, work))
            yield

    return alive


def _manager(request: HTTPConnection) -> Locks:
    locks = getattr(request.app.state, "locks", None)
    if not isinstance(locks, Locks):
        raise ConfigError(
            "the application has no manager of locks: make it with lifespan=lifespan(url), or use "
            "connected(app, url) in its own lifespan"
        )
    return locks


def _check(busy: object, retry_after: object, options: LockKeywords) -> None:
    """Refuses what cannot be meant, before any request comes."""
    if not isinstance(busy, int) or not 400 <= busy <= 599:
        raise ConfigError(f"busy is the status of an error, from 400 to 599, not {busy!r}")
    if type(retry_after) is not int or retry_after < 0:
        raise ConfigError(f"retry_after is a whole number of seconds, not {retry_after!r}")
    options_of("lock", options)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Returns the parameters of the user's function, which FastAPI is to fill in by their names."""
    found = inspect.signature(function, eval_str=True).parameters.values()
    for one in found:
        if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise ConfigError(
                f"the function that returns the lock's name has the parameter {str(one)!r}, which "
                "FastAPI cannot fill in: it gives each one by its name"
            )
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in found]


async def _called(function: Callable[..., Any], given: dict[str, Any]) -> str:
    """Returns the name that the user's function makes."""
    name = function(**given)
    if inspect.isawaitable(name):
        name = await name
    if not isinstance(name, str):
        raise ConfigError(
            f"the function that returns the lock's name returned {name!r:.80}, which is no str"
        )
    return name
