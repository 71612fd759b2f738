"""A call: one request, read and checked, before anything is sent to the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl

from .. import checks
from ..errors import ConfigError
from . import names
from .answers import Receive, Scope
from .authority import Caller, Role
from .bells import Bells, place_of
from .field_checks import seconds
from .fields import Field, Form, read_query
from .operations import Operation
from .paths import PATH_NAME
from .problems import Problem, no_namespace

if TYPE_CHECKING:
    from .service import Service
    from .store import Store

TIMING = ("heartbeat", "claim_window")
TIMING_FIELDS = Form(
    *(
        Field(
            name,
            seconds(name, 0.01, 60.0),
            {"type": "number", "minimum": 0.01, "maximum": 60},
            None,
        )
        for name in TIMING
    )
)
"""The times that a client of the library may set otherwise than the store; not in `/openapi.json`."""
MOST_QUERY = 8192
"""Bytes that a query may have."""


class Call:
    """One request for one operation."""

    __slots__ = (
        "body",
        "caller",
        "name",
        "operation",
        "query",
        "receive",
        "scope",
        "service",
        "store",
    )

    body: dict[str, Any]
    """The values of the body's fields."""
    query: dict[str, Any]
    """The values of the query's fields."""
    store: Store
    """The namespace that it is about."""

    def __init__(
        self,
        service: Service,
        operation: Operation,
        scope: Scope,
        receive: Receive,
        caller: Caller,
    ) -> None:
        self.service = service
        self.operation = operation
        self.scope = scope
        self.receive = receive
        self.caller = caller
        self.name = ""
        """The lock, or the resource, in the path; empty if there is none."""

    @property
    def client(self) -> str:
        """The address that the request came from."""
        client = self.scope.get("client")
        return client[0] if client else ""

    def place(self, owner: str, session: str | None = None) -> str:
        """Returns where wake-ups of `owner` are told: to listeners with the caller's own token."""
        return place_of(self.caller.key, owner, session)

    def limit_places(self, bells: Bells, owner: str) -> None:
        """Raises 429 if the caller may keep no further place, and this owner has none among `bells`."""
        if bells.ticket_of(self.name, owner) is None:
            places = self.service.places(self.caller.key)
            self.service.authority.limit_places(self.caller, places)

    async def read(self) -> None:
        """Reads and checks the request; raises a `Problem` if something is wrong with it."""
        operation = self.operation
        self._read_query()
        if PATH_NAME in self.scope:
            self._read_name()
        if operation.body is not None:
            limit = self.service.settings.body_limit
            self.body = operation.body.read(await self.read_json(limit))

    async def read_json(self, limit: int) -> Any:
        """Returns what the body says, which has at most `limit` bytes."""
        self._check_content(limit)
        return _value_of(await self._read_body(limit))

    def _read_query(self) -> None:
        operation = self.operation
        raw: bytes = self.scope["query_string"]
        if not raw and not operation.query.fields:
            self.query = {}
            self.store = self._store(None)
            return
        if len(raw) > MOST_QUERY:
            raise Problem("bad-input", f"the query has more than {MOST_QUERY} bytes")
        try:
            pairs = parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20
            )
        except ValueError:
            raise Problem("bad-input", "the query is not percent-encoded UTF-8") from None
        namespace = None
        if operation.namespaced:
            chosen = [value for name, value in pairs if name == "namespace"]
            if len(chosen) > 1:
                raise Problem("bad-input", "the query has 'namespace' twice", field="namespace")
            namespace = chosen[0] if chosen else None
            pairs = [pair for pair in pairs if pair[0] != "namespace"]
        timing: dict[str, float] = {}
        if operation.namespaced:
            given = [pair for pair in pairs if pair[0] in TIMING]
            pairs = [pair for pair in pairs if pair[0] not in TIMING]
            timing = {k: v for k, v in read_query(TIMING_FIELDS, given).items() if v is not None}
        self.store = self._store(namespace, timing)
        self.query = read_query(operation.query, pairs)

    def _store(self, namespace: str | None, timing: Mapping[str, float] | None = None) -> Store:
        """Returns the store of a namespace; one that the caller may not see is as one that is not."""
        service = self.service
        if not self.operation.namespaced:
            return service.first_store
        if namespace is None:
            namespace = service.authority.namespace(self.caller)
        store = service.store(namespace)
        if not service.authority.prefixes(self.caller, store.namespace):
            raise no_namespace(store.namespace)
        if not timing:
            return store
        return service.store(store.namespace, timing, self.caller.key)

    def _read_name(self) -> None:
        name = names.decode(self.scope[PATH_NAME])
        try:
            self.name = checks.printable("the name in the path", name, checks.MAX_NAME_BYTES)
        except ConfigError as error:
            raise Problem("bad-input", str(error), field=self.operation.parameter) from None
        self.require(self.operation.role, self.name)

    def require(self, role: Role, name: str) -> None:
        """Raises 403 unless the caller may do with `name` what `role` stands for."""
        if not self.service.authority.may(self.caller, role, self.store.namespace, name):
            raise Problem("forbidden", f"{self.caller.title} may not {role} {name!r}", name=name)

    def _check_content(self, limit: int) -> None:
        """Refuses a body that is not JSON, or too large by its announced size: before it is read.

        A client may wait for 100 Continue until then.
        """
        # Of two with the same name, the first counts.
        headers = dict(reversed([*self.scope["headers"]]))
        media_type = headers.get(b"content-type", b"")
        size = headers.get(b"content-length", b"")
        if (
            media_type != b"application/json"
            and media_type.partition(b";")[0].strip().lower() != b"application/json"
        ):
            raise Problem(
                "media-type",
                "the body has to be sent with Content-Type: application/json (with curl: --json)",
            )
        if size.isdigit() and int(size) > limit:
            raise _too_large(limit)

    async def _read_body(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Problem("bad-request", "the client went away before its body was read")
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            if not message.get("more_body", False):
                return b"".join((*parts, part)) if parts else part
            parts.append(part)


def _too_large(limit: int) -> Problem:
    return Problem(
        "too-large",
        f"the body has more than {limit} bytes",
        headers=((b"connection", b"close"),),
    )


def _value_of(data: bytes) -> Any:
    """Returns what a body says, in JSON; an empty one is an empty object."""
    if not data:
        return {}
    try:
        text = data.decode().strip(_SPACE)
        value, end = _scan(text, 0)
    except StopIteration:
        raise Problem("bad-request", "the body is not JSON: there is no value in it") from None
    except RecursionError:
        raise Problem("bad-request", "the body is nested too deeply") from None
    except ValueError as error:
        raise Problem("bad-request", f"the body is not JSON: {str(error)[:80]}") from None
    if end != len(text):
        raise Problem("bad-request", "the body is not JSON: more follows behind its end")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object of JSON; refuses one that has a field twice: each reader may take another."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a field twice")
    return members


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_members)
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # type: ignore[attr-defined]
"""Returns the value at a place in a text, and where it ends; `StopIteration` if there is none."""
_SPACE = " \t\n\r"
