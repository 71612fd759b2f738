"""A fence for objects on S3, GCS, Azure and what speaks like them, by conditional put.

The token and the lock's identity are kept in the object's own metadata, so they are written by the
same request as the data. A put reads them, judges, and writes on the condition that the object is
still the one that was read; if it is not, all of it is done again. So there is no moment between check
and write, and there are no marks of their own to prune: a mark lives as long as its object.

An object without a mark was there before the fence, or somebody has written over it and erased the
mark: nobody can tell, so it is refused until a person takes it under the fence by `reset`.

**Bytes that come back.** GCS and Azure give every write a version of its own (on GCS the generation;
its ETag is a hash too, but nothing depends on it). On S3 the version (the ETag) is the hash of the
bytes: if the same bytes are written again, a writer that was frozen inside its put could not tell. So
bytes that the object has held lately are refused there. Where they may well repeat, use `stamp=True`:
the object then begins with a line of its own, different each time, which `get` takes off. For the same
reason `guard`, which changes the mark and not the bytes, needs the stamp there.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import time
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from ..errors import BackendUnavailable, ConfigError, GuaranteeError, StaleToken
from . import floors, rules
from .fence import Fence, not_installed
from .rules import Credential, Mark, Token

# Azure takes no hyphens in these names, S3 no capitals.
TOKEN, LOCK, SEEN, READER = "holdfasttoken", "holdfastlock", "holdfastseen", "holdfastreader"
RESET = "holdfastreset"
STAMP = b"holdfast-stamp "
STAMPED = re.compile(STAMP + b"[0-9a-f]{24}\n")
REMEMBERED = 16
SHORT = 12
HASH = re.compile("[0-9a-f]{32}")
ATTEMPTS = 200
FIRST_PAUSE, LAST_PAUSE = 0.005, 0.2
MAX_LOCK = 512
"""All metadata of an object on S3 is at most 2 KB."""

Result = TypeVar("Result")


class ObjectState(NamedTuple):
    """An object as it was when it was read."""

    version: dict[str, str] | None
    """The version that the next put is conditional on; None if there is no such object."""
    mark: Mark | None
    """None if the object has no mark, though it is there."""
    hashes: tuple[str, ...]
    """Hashes of the bytes that the object has held lately, the present ones last."""
    hashed: bool
    """True if the version is such a hash, so that it comes back with the bytes."""
    attributes: dict[str, str]


NOTHING = ObjectState(None, Mark(), (), False, {})


class Request(NamedTuple):
    """One request: `get`, `head`, `put`, `delete`, or `sleep`."""

    verb: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012  never changed


Steps = Generator[Request, Any, Result]


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
            raise ConfigError(
                "ObjectFence needs the library obstore: pip install 'holdfast[objects]'"
            ) from None
        self._obstore = obstore
        self._store = store
        self._stamp = stamp
        self._generations = isinstance(store, obstore.store.GCSStore)

    def put(
        self, key: str, data: bytes | str, token: Token, *, attributes: dict[str, str] | None = None
    ) -> None:
        """Write the object, if no higher token has; else raises `StaleToken`.

        `attributes` are the object's own, such as `{"Content-Type": "text/csv"}`.
        """
        self._run(self._put(key, data, token, attributes))

    async def put_async(
        self, key: str, data: bytes | str, token: Token, *, attributes: dict[str, str] | None = None
    ) -> None:
        await self._run_async(self._put(key, data, token, attributes))

    def guard(self, key: str, token: Token) -> None:
        """Lets this token pass, and remembers it: for a reader, and before you read what you change.

        It writes the object again, with the same data. On S3 it needs `stamp=True`. The object must
        be there: put an empty one.
        """
        self._run(self._guard(key, token))

    async def guard_async(self, key: str, token: Token) -> None:
        await self._run_async(self._guard(key, token))

    def get(self, key: str) -> bytes:
        """The object's data, without its stamp if it has one."""
        data: bytes = self._run(self._get(key))
        return data

    async def get_async(self, key: str) -> bytes:
        data: bytes = await self._run_async(self._get(key))
        return data

    def highest(self, key: str) -> int:
        """Returns the highest token of a writer; 0 if none was seen."""
        return (self._run(self._look(key)).mark or Mark()).highest

    async def highest_async(self, key: str) -> int:
        seen = await self._run_async(self._look(key))
        return (seen.mark or Mark()).highest

    def reset(self, key: str, *, by: str, to: int = 0) -> int:
        """Forgets the highest token and the lock, and begins again at `to`; returns the old token.

        For when a store's tokens have fallen, or the object moved to another lock; and for an object
        that was there before the fence. Stop the writers first. It is kept in the object's metadata.
        """
        return self._run(self._reset(key, *rules.beginning(by, to)))

    async def reset_async(self, key: str, *, by: str, to: int = 0) -> int:
        return await self._run_async(self._reset(key, *rules.beginning(by, to)))

    def verify(self, prefix: str = "") -> None:
        """Proves that this store keeps conditions, by a probe below `prefix` that is then deleted.

        Raises `GuaranteeError` otherwise: there are servers that ignore them.
        """
        self._run(self._verify(prefix))

    async def verify_async(self, prefix: str = "") -> None:
        await self._run_async(self._verify(prefix))

    # What they do, step by step.

    def _put(
        self, key: str, data: bytes | str, token: Token, attributes: dict[str, str] | None
    ) -> Steps[None]:
        given = rules.writer(token)
        rules.resource_name(key)
        if not isinstance(data, bytes | bytearray | memoryview | str):
            raise ConfigError(f"data must be bytes or str, not {type(data).__name__}")
        body = data.encode() if isinstance(data, str) else bytes(data)
        if self._stamp:
            body = _stamped(body)
        digest = _digest(body)
        given = given._replace(lock=_lock(given))
        for attempt in range(ATTEMPTS):
            seen = yield from self._look(key)
            as_wanted = attributes is None or attributes.items() <= seen.attributes.items()
            done = seen.mark is not None and seen.mark.highest == given.token
            if attempt and done and as_wanted and seen.hashes[-1:] == (digest,):
                return  # it was done, and only the answer lost
            mark = self._judge(key, seen, given)
            if seen.hashed and digest in seen.hashes:
                if digest == seen.hashes[-1] and mark == seen.mark and as_wanted:
                    return  # the same holder, bytes and attributes: nothing changes
                raise GuaranteeError(
                    f"{key!r} has held these very bytes lately, and on this store a version is the "
                    "hash of the bytes, so a late writer could not be told apart: put the token "
                    "into the data, or use ObjectFence(store, stamp=True)",
                    name=given.name,
                    token=given.token,
                )
            own = seen.attributes if attributes is None else attributes
            if (yield from self._try_put(key, body, seen, mark, own)):
                return
            yield _pause(attempt)
        raise _restless(key, given)

    def _guard(self, key: str, token: Token) -> Steps[None]:
        given = rules.credential(token)
        rules.resource_name(key)
        given = given._replace(lock=_lock(given))
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
                body = _unstamped(bytes(found))
                body = _stamped(body) if self._stamp else body
                if (yield from self._try_put(key, body, seen, mark, seen.attributes)):
                    return
            yield _pause(attempt)
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
        """False if the object is not the one that was read any more."""
        hashes = [*seen.hashes, _digest(body)][-REMEMBERED:]
        fields = {
            TOKEN: str(mark.highest),
            LOCK: quote(mark.lock, safe="/:#"),
            SEEN: ".".join(hashes),
        }
        if mark.reader:
            fields[READER] = str(mark.reader)
        options = {
            "mode": "create" if seen.version is None else seen.version,
            "attributes": {**attributes, **fields},
            "use_multipart": False,
        }
        error = yield Request("put", (key, body), options)
        return error is None

    def _look(self, key: str) -> Steps[ObjectState]:
        found = yield Request("head", (key,))
        if found is None:
            return NOTHING
        attributes = dict(found.attributes)
        version = {name: found.meta[name] for name in ("e_tag", "version") if found.meta.get(name)}
        token, lock = attributes.pop(TOKEN, ""), unquote(attributes.pop(LOCK, ""))
        reader = int(attributes.pop(READER, "0"))
        hashes = tuple(filter(None, attributes.pop(SEEN, "").split(".")))
        etag = version.get("e_tag", "").strip('"')
        if hashes:
            hashed = etag.startswith(hashes[-1])
        else:  # written by somebody without a fence
            hashed = HASH.fullmatch(etag) is not None
            hashes = (etag[:SHORT],) if hashed else ()
        hashed = hashed and not self._generations
        mark = Mark(int(token), lock, reader) if token else None
        return ObjectState(version, mark, hashes, hashed, attributes)

    def _get(self, key: str) -> Steps[bytes]:
        data = yield Request("get", (key,))
        if data is None:
            raise FileNotFoundError(key)
        return _unstamped(bytes(data))

    def _reset(self, key: str, by: str, to: int) -> Steps[int]:
        while True:
            seen = yield from self._look(key)
            if seen.version is None:
                return 0
            found = yield Request("get", (key,))
            highest = (seen.mark or Mark()).highest
            note = json.dumps({"by": by, "token": highest})
            attributes = {**seen.attributes, RESET: quote(note)}
            if found is None:
                continue
            body = _stamped(_unstamped(bytes(found))) if self._stamp else bytes(found)
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

    # How they reach the store.

    def _run(self, steps: Steps[Result]) -> Result:
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._perform(request)
                except Exception as error:
                    answer = self._outcome(request, error)
                # An error goes through the steps too, for what they have to clean up.
                failed = isinstance(answer, _Failed)
                request = steps.throw(answer.error) if failed else steps.send(answer)
        except StopIteration as stop:
            result: Result = stop.value
            return result

    async def _run_async(self, steps: Steps[Result]) -> Result:
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._perform_async(request)
                except Exception as error:
                    answer = self._outcome(request, error)
                failed = isinstance(answer, _Failed)
                request = steps.throw(answer.error) if failed else steps.send(answer)
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def _perform(self, request: Request) -> Any:
        obstore, store = self._obstore, self._store
        if request.verb == "sleep":
            time.sleep(*request.args)
        elif request.verb == "get":
            return obstore.get(store, *request.args).bytes()
        elif request.verb == "head":
            return obstore.get(store, *request.args, options={"head": True})
        elif request.verb == "put":
            obstore.put(store, *request.args, **request.options)
        else:
            obstore.delete(store, *request.args)
        return None

    async def _perform_async(self, request: Request) -> Any:
        from asyncio import sleep

        obstore, store = self._obstore, self._store
        if request.verb == "sleep":
            await sleep(*request.args)
        elif request.verb == "get":
            return await (await obstore.get_async(store, *request.args)).bytes_async()
        elif request.verb == "head":
            return await obstore.get_async(store, *request.args, options={"head": True})
        elif request.verb == "put":
            await obstore.put_async(store, *request.args, **request.options)
        else:
            await obstore.delete_async(store, *request.args)
        return None

    def _outcome(self, request: Request, error: Exception) -> Any:
        """Returns the meaning of an error for the steps."""
        name = type(error).__name__
        missing = isinstance(error, FileNotFoundError)
        if missing and request.verb in ("head", "get", "delete"):
            return None
        if request.verb == "put":
            if missing or name in ("AlreadyExistsError", "PreconditionError"):
                return error  # not the object that was read any more
            if name in ("NotSupportedError", "NotImplementedError"):
                why = f"no conditional put: {error}"
                return _Failed(not_installed(type(self._store).__name__, why))
        return _Failed(error)


class _Failed(NamedTuple):
    error: Exception


def _pause(attempt: int) -> Request:
    return Request("sleep", (min(FIRST_PAUSE * 2**attempt, LAST_PAUSE) * random.random(),))


def _restless(key: str, given: Credential) -> BackendUnavailable:
    return BackendUnavailable(
        f"{key!r} changed {ATTEMPTS} times while it was to be written; try again",
        token=given.token,
    )


def _stamped(body: bytes) -> bytes:
    return STAMP + os.urandom(12).hex().encode() + b"\n" + body


def _unstamped(body: bytes) -> bytes:
    stamp = STAMPED.match(body)
    return body[stamp.end() :] if stamp else body


def _lock(given: Credential) -> str:
    if len(quote(given.lock, safe="/:#")) <= MAX_LOCK:
        return given.lock
    digest = hashlib.sha256(given.lock.encode()).hexdigest()
    return f"{floors.realm(given.lock)[:100]}/sha256:{digest}"


def _digest(body: bytes) -> str:
    """As S3 makes its ETags, so that the two compare."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()[:SHORT]
