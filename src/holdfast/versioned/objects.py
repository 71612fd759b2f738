"""An object on S3, GCS, Azure or the like: the version is its ETag, on GCS its generation, and the
condition is the store's own.

On S3 an ETag is the hash of the bytes. That does no harm here: a change that was computed from the
same bytes is the same change.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ConfigError
from ..fences.object_state import TOKEN
from ..refusals import lacks
from .register import Conflict, Register, Steps, Versioned, data


class ObjectVersion(NamedTuple):
    """A version as the store names it; which of the two its condition is on is its own affair."""

    e_tag: str | None
    version: str | None
    fenced: bool = False
    """True if the object bears the mark of an `ObjectFence`, which a put would erase."""


class ObjectVersioned(Register):
    """Objects of a store of obstore's. In asyncio: `ObjectVersioned(store, asynchronous=True)`.

    obstore asks a server again that answers 5xx. If that server had written nevertheless, the change
    is computed again from its own result: make the store with `retry_config={"max_retries": 0}` where
    that must not be.
    """

    def __init__(self, store: Any, *, asynchronous: bool = False) -> None:
        try:
            import obstore
        except ImportError:
            raise ConfigError(lacks("ObjectVersioned", "the package obstore", "objects")) from None
        self._obstore = obstore
        self._store = store
        self.asynchronous = asynchronous

    def _get(self, key: str) -> Steps[Versioned]:
        obstore = self._obstore
        get = obstore.get_async if self.asynchronous else obstore.get
        try:
            found = yield lambda: get(self._store, key)
        except FileNotFoundError:
            return Versioned(None, None)
        body = yield found.bytes_async if self.asynchronous else found.bytes
        return Versioned(
            bytes(body), _version(found.meta)._replace(fenced=TOKEN in found.attributes)
        )

    def _put(
        self, key: str, value: bytes | str, version: ObjectVersion | None
    ) -> Steps[ObjectVersion]:
        obstore = self._obstore
        put = obstore.put_async if self.asynchronous else obstore.put
        body = data(value)
        mode: Any = "create"
        if version is not None:
            if version.fenced:
                raise ConfigError(
                    f"{key!r} is behind an ObjectFence, whose mark this would erase: write it by the "
                    "fence's put()"
                )
            known = {"e_tag": version.e_tag, "version": version.version}
            mode = {name: of for name, of in known.items() if of is not None} or "create"
        try:
            written = yield lambda: put(self._store, key, body, mode=mode, use_multipart=False)
        except Exception as error:
            name = type(error).__name__
            if isinstance(error, FileNotFoundError) or name in (
                "AlreadyExistsError",
                "PreconditionError",
            ):
                raise Conflict(key, "it is not the object that was read any more") from None
            raise
        return _version(written)


def _version(told: Any) -> ObjectVersion:
    return ObjectVersion(told.get("e_tag"), told.get("version"))
