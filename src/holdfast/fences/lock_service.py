"""The fence of a lock service, which keeps it in the store behind it."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from urllib.parse import quote, unquote

from ..clock import system_clock
from ..errors import ConfigError, StaleToken
from ..stores.http._sync.retry import Reply, Retrier
from ..stores.http.address import OPTIONS, address_of
from ..stores.http.codec import encode, path_part
from ..stores.http.problems import error_of, kind_of
from ..stores.http.wire.threads import Wire
from ..stores.urls import Target, merge_options
from .rules import Token, credential, resource_name


def guard(target: Target, resource: str, token: Token, patience: float) -> None:
    """Shows the token to the fence of the lock service at `target`.

    The service has `patience` seconds for each request. One that was not answered is sent again: the
    same token passes twice.
    """
    resource, given = resource_name(resource), credential(token)
    address = address_of(target, merge_options(target, {}, OPTIONS))
    clock = system_clock()
    with closing(Wire(address)) as wire:
        retrier = Retrier(wire, address, clock)

        def ask(method: str, path: str, body: bytes | None = None) -> Reply:
            return retrier.call(method, path, body, clock.now() + patience)

        fields: dict[str, Any] = {"token": given.token}
        query = ""
        if given.lock:
            # The service counts by the locks of its own store: another's tokens do not compare.
            realm, _, fields["lock"] = given.lock.partition("/")
            realm, _, slot = realm.partition("#")
            if slot:
                fields["slot"] = int(slot) if slot.isascii() and slot.isdigit() else slot
            query = f"?namespace={quote(unquote(realm.partition(':')[2]), safe='')}"
            reply = ask("GET", f"/v1/guarantees{query}")
            data = reply.data if isinstance(reply.data, dict) else {}
            if reply.status in (401, 403):
                raise error_of(reply.answer, data)
            if reply.status != 200 or data.get("realm") != realm:
                raise ConfigError(
                    f"the token is of a lock of {realm!r}, which the lock service at {target} does "
                    "not have; name another place for the fence by --url, such as a database"
                )
        if given.reader:
            fields["reads"] = True
        path = f"/v1/fences/{path_part(resource)}/check{query}"
        reply = ask("POST", path, encode(fields).encode())
    if reply.status == 200:
        return
    data = reply.data if isinstance(reply.data, dict) else {}
    if reply.status == 409 and kind_of(data) == "stale-token":
        highest, reason = data.get("highest"), data.get("reason")
        detail = str(data.get("detail", "")).rpartition("refused")[2].lstrip(" :")
        raise StaleToken(
            resource,
            given.token,
            highest if isinstance(highest, int) else 0,
            name=given.name,
            reason=str(reason or "stale"),
            detail=detail[:1000],
        )
    raise error_of(reply.answer, data)
