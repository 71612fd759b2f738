"""An object behind an `ObjectFence` as it stands in its store: its mark, its version, its bytes.

**Bytes that come back.** GCS and Azure give every write a version of its own (on GCS the generation;
its ETag is a hash too, but nothing depends on it). On S3 the version (the ETag) is the hash of the
bytes: if the same bytes are written again, a writer that was frozen inside its put could not tell. So
the hashes of the last bytes are kept, as many as an object's metadata has room for; older ones are not
known any more. A stamp makes all bytes different, and so is the only sure way there.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ..errors import ConfigError
from . import floors
from .rules import Credential, Mark

# Azure takes no hyphens in these names, S3 no capitals.
TOKEN, LOCK, SEEN, READER = "holdfasttoken", "holdfastlock", "holdfastseen", "holdfastreader"
OWN = "holdfast"
"""The beginning of these names, which no others have."""
STAMP = b"holdfast-stamp "
STAMPED = re.compile(STAMP + b"[0-9a-f]{24}\n")
REMEMBERED = 16
SHORT = 12
HASH = re.compile("[0-9a-f]{32}")
MAX_LOCK = 512
"""All metadata of an object on S3 is at most 2 KB."""


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


def state_of(found: Any, generations: bool) -> ObjectState:
    """Returns the state of an object from the store's answer to a HEAD; None says that there is none.

    `generations` says that the store numbers its versions, whatever its ETags are.
    """
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
    mark = Mark(int(token), lock, reader) if token else None
    return ObjectState(version, mark, hashes, hashed and not generations, attributes)


def metadata_of(mark: Mark, seen: ObjectState, body: bytes) -> dict[str, str]:
    """Returns the metadata of an object that is `seen` now, and is to have this mark and this body."""
    hashes = [*seen.hashes, digest(body)][-REMEMBERED:]
    fields = {
        TOKEN: str(mark.highest),
        LOCK: quote(mark.lock, safe="/:#"),
        SEEN: ".".join(hashes),
    }
    if mark.reader:
        fields[READER] = str(mark.reader)
    return fields


def refuse_own(attributes: dict[str, str]) -> None:
    """Refuses attributes that the fence would take for its own: it remembers tokens in those."""
    for name in attributes:
        if str(name).lower().startswith(OWN):
            raise ConfigError(
                f"the attribute {name!r} is one of the fence's own, where it remembers tokens: leave "
                f"out those that begin with {OWN}"
            )


def stamped(body: bytes) -> bytes:
    """Returns the body behind a line that no other has."""
    return STAMP + os.urandom(12).hex().encode() + b"\n" + body


def unstamped(body: bytes) -> bytes:
    """Returns the body without its stamp, if it has one."""
    stamp = STAMPED.match(body)
    return body[stamp.end() :] if stamp else body


def shortened(given: Credential) -> Credential:
    """Returns the credential with an identity of its lock that fits into an object's metadata."""
    if len(quote(given.lock, safe="/:#")) <= MAX_LOCK:
        return given
    long = hashlib.sha256(given.lock.encode()).hexdigest()
    return given._replace(lock=f"{floors.realm(given.lock)[:100]}/sha256:{long}")


def digest(body: bytes) -> str:
    """Returns the hash of a body, made as S3 makes its ETags, so that the two compare."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()[:SHORT]
