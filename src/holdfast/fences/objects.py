"""A fence for objects on S3, GCS, Azure and what speaks like them, by conditional put.

The token and the lock's identity are kept in the object's own metadata, so they are written by the
same request as the data. A put reads them, judges, and writes on the condition that the object is
still the one that was read; if it is not, all of it is done again. So there is no moment between check
and write, and there are no marks of their own to prune: a mark lives as long as its object.

An object without a mark was there before the fence, or somebody has written over it and erased the
mark: nobody can tell, so it is refused until a person takes it under the fence by `reset`.

On S3 an object's version is the hash of its bytes (see `object_state`). So bytes that the object has
held lately are refused there; the fence does not know older ones. Where they may repeat at all, use
`stamp=True`: the object then begins with a line of its own, different each time, which `get` takes off.
For the same reason `guard`, which changes the mark and not the bytes, needs the stamp there.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import quote

from ..errors import BackendUnavailable, ConfigError, GuaranteeError, StaleToken
from ..refusals import lacks
from . import rules
from .fence import Fence, not_installed
from .object_requests import ObjectRequests, Request, Steps, pause
from .object_state import (
    NOTHING,
    ObjectState,
    digest,
    metadata_of,
    refuse_own,
    shortened,
    stamped,
    state_of,
    unstamped,
)
from .rules import Credential, Mark, Token

RESET = "holdfastreset"
ATTEMPTS = 200


class ObjectFence(Fence):
    """`ObjectFence(store)`, with a store of obstore: `S3Store`, `GCSStore`, `AzureStore`, …

    In asyncio use `put_async`, `get_async`, and so on, as in obstore itself.
    """

    def __init__(self, store: Any, *, stamp: bool = False, single_use: bool = False) -> None:
        super().__init__(single_use=single_use)
        if type(stamp) is not bool:
            raise ConfigError(f"stamp must be True or False, not {stamp!r:.80}")
        try:
            import obstore
            import obstore.store
        except ImportError:
            raise ConfigError(lacks("ObjectFence", "the package obstore", "objects")) from None
        self._store = store
        self._requests = ObjectRequests(obstore, store)
        self._stamp = stamp
        self._generations = isinstance(store, obstore.store.GCSStore)

    def put(
        self, key: str, data: bytes | str, token: Token, *, attributes: dict[str, str] | None = None
    ) -> None:
        """Writes the object, if no higher token has; else raises `StaleToken`.

        `attributes` are the object's own, such as `{"Content-Type": "text/csv"}`.
        """
        self._requests.run(self._put(key, data, token, attributes))

    async def put_async(
        self, key: str, data: bytes | str, token: Token, *, attributes: dict[str, str] | None = None
    ) -> None:
        await self._requests.run_async(self._put(key, data, token, attributes))

    def guard(self, key: str, token: Token) -> None:
        """Lets this token pass, and remembers it: for a reader, and before you read what you change.

        It writes the object again, with the same data. On S3 it needs `stamp=True`. The object must
        be there: put an empty one.
        """
        self._requests.run(self._guard(key, token))

    async def guard_async(self, key: str, token: Token) -> None:
        await self._requests.run_async(self._guard(key, token))

    def get(self, key: str) -> bytes:
        """Returns the object's data, without its stamp if it has one."""
        data: bytes = self._requests.run(self._get(key))
        return data

    async def get_async(self, key: str) -> bytes:
        data: bytes = await self._requests.run_async(self._get(key))
        return data

    def highest(self, key: str) -> int:
        """Returns the highest token of a writer; 0 if none was seen."""
        return (self._requests.run(self._look(key)).mark or Mark()).highest

    async def highest_async(self, key: str) -> int:
        seen = await self._requests.run_async(self._look(key))
        return (seen.mark or Mark()).highest

    def reset(self, key: str, *, by: str, to: int = 0) -> int:
        """Forgets the highest token and the lock, and begins again at `to`; returns the old token.

        For when a store's tokens have fallen, or the object moved to another lock; and for an object
        that was there before the fence. Stop the writers first. It is kept in the object's metadata.
        """
        return self._requests.run(self._reset(key, *rules.beginning(by, to)))

    async def reset_async(self, key: str, *, by: str, to: int = 0) -> int:
        return await self._requests.run_async(self._reset(key, *rules.beginning(by, to)))

    def verify(self, prefix: str = "") -> None:
        """Proves that this store keeps conditions, by a probe below `prefix` that is then deleted.

        Raises `GuaranteeError` otherwise: there are servers that ignore them.
        """
        self._requests.run(self._verify(prefix))

    async def verify_async(self, prefix: str = "") -> None:
        await self._requests.run_async(self._verify(prefix))

    # What they do, step by step.

    def _put(
        self, key: str, data: bytes | str, token: Token, attributes: dict[str, str] | None
    ) -> Steps[None]:
        given = rules.writer(token)
        rules.resource_name(key)
        if not isinstance(data, bytes | bytearray | memoryview | str):
            raise ConfigError(f"data must be bytes or str, not {type(data).__name__}")
        refuse_own(attributes or {})
        body = data.encode() if isinstance(data, str) else bytes(data)
        if self._stamp:
            body = stamped(body)
        elif unstamped(body) != body:
            raise ConfigError(
                f"these bytes for {key!r} begin with what looks like a stamp of the fence's own, which "
                "get() would take off: use ObjectFence(store, stamp=True)"
            )
        known = digest(body)
        given = shortened(given)
        for attempt in range(ATTEMPTS):
            seen = yield from self._look(key)
            as_wanted = attributes is None or attributes.items() <= seen.attributes.items()
            done = seen.mark is not None and seen.mark.highest == given.token
            if attempt and done and as_wanted and seen.hashes[-1:] == (known,):
                return  # it was done, and only the answer lost
            mark = self._judge(key, seen, given)
            if seen.hashed and known in seen.hashes:
                if known == seen.hashes[-1] and mark == seen.mark and as_wanted:
                    return  # the same holder, bytes and attributes: nothing changes
                raise GuaranteeError(
                    f"{key!r} has held these very bytes lately, and on this store a version is the "
                    "hash of the bytes, so a late writer could not be told apart: put the token "
                    "into the data, or use ObjectFence(store, stamp=True)",
                    name=given.name,
                    token=given.token,
                )
            own = seen.attributes
            if attributes is not None:  # who has reset it stays on record
                own = {**attributes, **{name: own[name] for name in (RESET,) if name in own}}
            if (yield from self._try_put(key, body, seen, mark, own)):
                return
            yield pause(attempt)
        raise _restless(key, given)

    def _guard(self, key: str, token: Token) -> Steps[None]:
        given = rules.credential(token)
        rules.resource_name(key)
        given = shortened(given)
        for attempt in range(ATTEMPTS):
            seen = yield from self._look(key)
            if seen.version is None:
                raise GuaranteeError(
                    f"there is no object {key!r} to remember a token at: put an empty one first",
                    name=given.name,
                    token=given.token,
                )
            mark = self._judge(key, seen, given)
            if mark == seen.mark:
                return
            if seen.hashed and not self._stamp:
                raise GuaranteeError(
                    f"{key!r} cannot remember a token without a change of its bytes: on this store a "
                    "version is their hash; use ObjectFence(store, stamp=True)",
                    name=given.name,
                    token=given.token,
                )
            found = yield Request("get", (key,))
            if found is not None:  # else it was deleted meanwhile
                body = unstamped(bytes(found))
                body = stamped(body) if self._stamp else body
                if (yield from self._try_put(key, body, seen, mark, seen.attributes)):
                    return
            yield pause(attempt)
        raise _restless(key, given)

    def _judge(self, key: str, seen: ObjectState, given: Credential) -> Mark:
        """Returns the mark as it is once `given` has passed; raises if it may not."""
        if seen.mark is None:
            raise GuaranteeError(
                f"{key!r} has no mark: it was there before this fence, or somebody has written over "
                "it without the fence, and the tokens that it had seen are lost; stop the writers, "
                "then reset(key, by=…, to=…) with a number that is no lower than those",
                name=given.name,
                owner=given.owner,
                token=given.token,
            )
        refused = rules.refusal(key, seen.mark, given, self.single_use)
        if refused is not None:
            raise refused
        return rules.after(seen.mark, given)

    def _try_put(
        self, key: str, body: bytes, seen: ObjectState, mark: Mark, attributes: dict[str, str]
    ) -> Steps[bool]:
        """Writes the object; returns False if it is not the one that was read any more."""
        options = {
            "mode": "create" if seen.version is None else seen.version,
            "attributes": {**attributes, **metadata_of(mark, seen, body)},
            "use_multipart": False,
        }
        error = yield Request("put", (key, body), options)
        return error is None

    def _look(self, key: str) -> Steps[ObjectState]:
        return state_of((yield Request("head", (key,))), self._generations)

    def _get(self, key: str) -> Steps[bytes]:
        data = yield Request("get", (key,))
        if data is None:
            raise FileNotFoundError(key)
        return unstamped(bytes(data))

    def _reset(self, key: str, by: str, to: int) -> Steps[int]:
        while True:
            seen = yield from self._look(key)
            if seen.version is None:
                if to:
                    raise GuaranteeError(
                        f"there is no object {key!r} that could keep this number: put an empty one "
                        "first, with a token that is no lower"
                    )
                return 0
            found = yield Request("get", (key,))
            highest = (seen.mark or Mark()).highest
            note = json.dumps({"by": by, "token": highest})
            attributes = {**seen.attributes, RESET: quote(note)}
            if found is None:
                continue
            body = stamped(unstamped(bytes(found))) if self._stamp else bytes(found)
            if (yield from self._try_put(key, body, seen, Mark(to), attributes)):
                return highest

    def _verify(self, prefix: str) -> Steps[None]:
        key = f"{prefix}holdfast-probe-{os.urandom(6).hex()}"
        where = f"{type(self._store).__name__}"
        try:
            if not (yield from self._try_put(key, b"1", NOTHING, Mark(1), {})):
                raise not_installed(where, "the probe could not be made")
            first = yield from self._look(key)
            if (yield from self._try_put(key, b"2", NOTHING, Mark(2), {})):
                raise not_installed(where, "it ignores that an object is to be created only")
            if not (yield from self._try_put(key, b"3", first, Mark(3), {})):
                raise not_installed(where, "an update of what was just read is refused")
            if (yield from self._try_put(key, b"4", first, Mark(4), {})):
                raise not_installed(where, "it ignores the condition of an update")
            found = yield from self._look(key)
            if found.mark is None or found.mark.highest != 3:
                raise not_installed(where, "it does not keep an object's metadata")
            try:
                yield from self._put(key, b"5", 2, None)
            except StaleToken:
                return
            raise not_installed(where, "it let an older token pass")
        finally:
            yield Request("delete", (key,))


def _restless(key: str, given: Credential) -> BackendUnavailable:
    return BackendUnavailable(
        f"{key!r} changed {ATTEMPTS} times while it was to be written; try again",
        token=given.token,
    )
