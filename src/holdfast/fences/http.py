"""Tokens over HTTP: the headers that carry them, and the client's side for httpx and requests.

    Fencing-Token: 1794722314229786
    Fencing-Lock: redis:billing/invoice%3A42     which lock it is of, if a lease was given
    Fencing-Compare: ?1                          a reader's: it may read, and does not write

A fence answers 409 with `Fencing-Highest` when it refuses a token. `Fencing-Probe` asks whether there
is a fence at all; only a fence sends it back, and says by `Fencing-Memory` where it remembers tokens.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from .. import checks
from ..errors import ConfigError, StaleToken
from . import rules
from .fence import Fence, not_installed
from .rules import Token

TOKEN, LOCK, COMPARE = "Fencing-Token", "Fencing-Lock", "Fencing-Compare"
HIGHEST, REASON, PROBE = "Fencing-Highest", "Fencing-Reason", "Fencing-Probe"
MEMORY = "Fencing-Memory"
PROCESS, FOLDER = "process", "folder"
"""The kinds of memory that a `FencingMiddleware` may have, as `Fencing-Memory` begins."""
TOKEN_HEADERS = (TOKEN, LOCK, COMPARE)
CONFLICT = 409
MAX_LOCK = 8192
"""Bytes of a lock's identity: more than the longest namespace, slot and name together."""

Client = TypeVar("Client")


class RequestToken:
    """A request's token: give it to a fence in your handler, wherever a token is taken."""

    kind = "lock"

    def __init__(self, token: int, lock_id: str = "", shared: bool = False) -> None:
        self.token = token
        self.lock_id = lock_id
        self.shared = shared
        self.owner = ""
        self.name = lock_id.partition("/")[2]
        if shared:
            self.kind = "rwlock"

    def __repr__(self) -> str:
        return f"<token {self.token} of {self.lock_id or 'a lock that was not named'}>"


def fencing_headers(token: Token) -> dict[str, str]:
    """Returns the headers that carry a token, or better a lease, to a fence: for any client."""
    given = rules.credential(token)
    headers = {TOKEN: str(given.token)}
    if given.lock:
        headers[LOCK] = quote(given.lock, safe="/:#")
    if given.reader:
        headers[COMPARE] = "?1"
    return headers


def read_headers(headers: Mapping[str, str]) -> RequestToken | None:
    """Returns the token of a request; None if it carries none. The mapping's names are in lower case.

    One that came several times has all its values, with commas between, and is refused.
    """
    text = headers.get(TOKEN.lower())
    if text is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise ConfigError(f"{TOKEN} must be a whole number, not {text[:40]!r}")
    quoted = headers.get(LOCK.lower(), "").strip()
    lock = unquote(quoted)
    if lock:
        checks.printable(LOCK, lock, MAX_LOCK)
    if "," in quoted:
        raise ConfigError(f"{LOCK} must come once, with a comma as %2C, not {quoted[:40]!r}")
    compare = headers.get(COMPARE.lower(), "").strip()
    if compare not in ("", "?0", "?1"):
        raise ConfigError(f"{COMPARE} must be ?1 or ?0, not {compare[:40]!r}")
    presented = RequestToken(int(text), lock, compare == "?1")
    rules.credential(presented)
    return presented


def raise_for_stale(response: Any) -> None:
    """Raise `StaleToken` if a fence refused this request; a response of httpx or requests."""
    if response.status_code != CONFLICT or HIGHEST not in response.headers:
        return
    request = response.request
    token = request.headers.get(TOKEN, "0")
    try:
        credential, highest = int(token), int(response.headers[HIGHEST])
    except ValueError:
        return  # not one of ours
    name = unquote(request.headers.get(LOCK, "")).partition("/")[2] or None
    reason = response.headers.get(REASON, rules.STALE)
    try:
        detail = str(response.json()["detail"])
    except Exception:  # streamed and not read, or not what we sent
        detail = f"{reason}; the highest token that it has seen is {highest}"
    raise StaleToken(
        _plain(str(request.url)), credential, highest, name=name, reason=reason, detail=detail
    ) from None


def _plain(url: str) -> str:
    """Without user, password and query, which may be secret; a fence goes by the path anyway."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@contextmanager
def fenced(client: Client, token: Token) -> Iterator[Client]:
    """While inside, every request of this client shows the lease, and a refusal is `StaleToken`.

    For `httpx.Client`, `httpx.AsyncClient` and `requests.Session`. The client must not be shared
    with those who hold another lease; for single requests there is `fencing_headers(lease)`.
    """
    headers = fencing_headers(token)
    restore = _hook(client, headers)
    try:
        yield client
    finally:
        restore()


class HttpFence(Fence):
    """The fence of an HTTP service, as its clients have it: what `protects=` takes.

    `with lease.guard(client):` is `with fenced(client, lease):`. The tokens are remembered, and
    refused, by the `FencingMiddleware` of the service: `verify` asks whether there is one.
    """

    def __init__(self) -> None:
        super().__init__()

    def guard(self, client: Client, token: Token) -> AbstractContextManager[Client]:
        """While inside, every request of this client shows the lease: see `fenced`."""
        return fenced(client, token)

    def headers(self, token: Token) -> dict[str, str]:
        """For single requests, and for clients that `guard` does not know: see `fencing_headers`."""
        return fencing_headers(token)

    def verify(self, client: Any, url: str, *, shared: bool = True) -> Any:
        """Asks whether there is a fence at this URL, and one only: see `verify_fenced`."""
        return verify_fenced(client, url, shared=shared)


def _hook(client: Any, headers: dict[str, str]) -> Callable[[], None]:
    if hasattr(client, "event_hooks"):  # httpx
        before = client.event_hooks
        waits = inspect.iscoroutinefunction(getattr(type(client), "request", None))

        def add(request: Any) -> None:
            for name in TOKEN_HEADERS:  # of a lease further out
                request.headers.pop(name, None)
            request.headers.update(headers)

        async def add_async(request: Any) -> None:
            add(request)

        def check(response: Any) -> None:
            if response.status_code == CONFLICT:
                response.read()
                raise_for_stale(response)

        async def check_async(response: Any) -> None:
            if response.status_code == CONFLICT:
                await response.aread()
                raise_for_stale(response)

        ours = (add_async, check_async) if waits else (add, check)
        client.event_hooks = {
            "request": [*before.get("request", []), ours[0]],
            "response": [*before.get("response", []), ours[1]],
        }

        def restore() -> None:
            client.event_hooks = before

        return restore
    if hasattr(client, "hooks") and hasattr(client, "headers"):  # requests
        had = {name: client.headers.pop(name, None) for name in TOKEN_HEADERS}
        client.headers.update(headers)

        def look(response: Any, *_: Any, **__: Any) -> None:
            raise_for_stale(response)

        client.hooks["response"].append(look)

        def unhook() -> None:
            client.hooks["response"].remove(look)
            for name, value in had.items():
                if value is None:
                    client.headers.pop(name, None)
                else:
                    client.headers[name] = value

        return unhook
    raise ConfigError(
        f"fenced() takes a client of httpx or a session of requests, not {type(client).__name__}; "
        "for others there is fencing_headers()"
    )


PROBES = 8
"""Requests by which `verify_fenced` finds out whether several workers answer."""


def verify_fenced(client: Any, url: str, *, shared: bool = True) -> Any:
    """Asks whether there is a fence at this URL; raises `GuaranteeError` if there is none.

    And if there are several that know nothing of each other: each request is on a connection of its
    own, and all must be answered from the same memory. That of a single process does not count as one
    (another worker, or the same after a restart, knows nothing of it), unless `shared=False`, which
    is for what lives in that process, too, or is fenced once more behind the service.

    Nothing reaches the application: they are OPTIONS requests, which a fence answers by itself.
    With an asynchronous client it is awaited.
    """
    probes = _Probes(url, shared)
    answer = client.request("OPTIONS", url, headers=probes.headers)
    if inspect.isawaitable(answer):

        async def wait() -> None:
            probes.answered(await answer)
            for _ in range(PROBES - 1):
                probes.answered(await client.request("OPTIONS", url, headers=probes.headers))

        return wait()
    probes.answered(answer)
    for _ in range(PROBES - 1):
        probes.answered(client.request("OPTIONS", url, headers=probes.headers))
    return None


class _Probes:
    """The requests of `verify_fenced`, and what their answers say."""

    def __init__(self, url: str, shared: bool) -> None:
        self._url = _plain(url)
        self._shared = shared
        self._nonce = os.urandom(8).hex()
        self._memory: str | None = None
        self.headers = {PROBE: self._nonce, "Connection": "close"}

    def answered(self, response: Any) -> None:
        """Raises `GuaranteeError` if this answer is not what a fence gives."""
        if response.headers.get(PROBE) != self._nonce:
            raise not_installed(
                self._url, f"no FencingMiddleware answered, but status {response.status_code}"
            )
        memory = response.headers.get(MEMORY, "")
        if self._memory not in (None, memory):
            raise not_installed(
                self._url,
                "several workers answer, and each remembers tokens on its own; on one machine give "
                "their FencingMiddleware the same folder=…, on several fence the database behind them",
            )
        self._memory = memory
        if self._shared and memory.partition("-")[0] != FOLDER:
            raise not_installed(
                self._url,
                "it remembers tokens in the memory of one process, of which another worker, or the "
                "same one after a restart, knows nothing; give its FencingMiddleware folder=…, or "
                "verify by shared=False, if that process is all there is or the database is fenced too",
            )
