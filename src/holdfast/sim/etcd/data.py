"""The data that an etcd cluster agrees on: keys with all their revisions, and leases. Requests come
and answers go as the bytes that etcd's own do, so the codec of the backend runs, too.

A test asks a real etcd the same, answer by answer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple, cast

from ...stores.etcd.wire.codec import Value, data, fields, number

SHORTEST_TTL = 1
_CREATED, _CHANGED = 1, 2
_BY_CREATION = 2
_DESCENDING = 2


class Refusal(Exception):
    """A refusal by etcd: the name of a gRPC status, and its text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = f"etcdserver: {text}"


class Version(NamedTuple):
    """A key as one revision left it. `number` counts its changes; 0: it was deleted."""

    key: bytes
    value: bytes
    created: int
    changed: int
    number: int
    lease: int

    def encode(self) -> bytes:
        return (
            data(1, self.key)
            + number(2, self.created)
            + number(3, self.changed)
            + number(4, self.number)
            + (data(5, self.value) if self.value else b"")
            + number(6, self.lease)
        )


class Answer(NamedTuple):
    """An answer without its header, which the member that answers puts before it."""

    revision: int
    body: bytes


class Keys:
    """All keys and leases, and the requests that read and write them."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.leases: dict[int, int] = {}
        """The leases, with their TTLs."""
        self.changes: list[Version] = []
        """All changes, in order, for the watches."""
        self._keys: dict[bytes, list[Version]] = {}
        self._names: list[bytes] = []
        self._hanging: dict[int, dict[bytes, None]] = {}
        self._writing = 0

    # Reading.

    def at(self, key: bytes, revision: int) -> Version | None:
        for version in reversed(self._keys.get(key, ())):
            if version.changed <= revision:
                return version if version.number else None
        return None

    def among(self, key: bytes, end: bytes, revision: int) -> Iterator[Version]:
        """Yields the key, or all up to `end`, as they were at that revision."""
        if not end:
            found = self.at(key, revision)
            if found is not None:
                yield found
            return
        names = self._names
        last = len(names) if end == b"\0" else bisect_left(names, end)
        for name in names[bisect_left(names, key) : last]:
            found = self.at(name, revision)
            if found is not None:
                yield found

    def range(self, request: bytes, revision: int) -> Answer:
        parts = _parts(request)
        found = list(self.among(_bytes(parts, 1), _bytes(parts, 2), revision))
        whole = len(found)
        found = [version for version in found if version.created >= _int(parts, 12)]
        if parts.get(6) == _BY_CREATION:
            found.sort(key=lambda version: version.created, reverse=parts.get(5) == _DESCENDING)
        count, limit = len(found), _int(parts, 3)
        body = b"".join(
            data(2, version.encode()) for version in (found[:limit] if limit else found)
        )
        return Answer(revision, body + number(3, 0 < limit < count) + number(4, whole))

    # Writing: each call is one revision, if it changes anything.

    def txn(self, request: bytes, revision: int | None = None) -> Answer:
        """Carries a transaction out; one that only reads may be asked of an older revision."""
        if revision is not None:
            return Answer(revision, self._branch(request, revision, revision))
        self._check(request)
        self._writing = 0
        body = self._branch(request, self.revision, self.revision + 1)
        return Answer(self._wrote(), body)

    def delete(self, request: bytes) -> Answer:
        self._writing = 0
        body = self._delete(request)
        return Answer(self._wrote(), body)

    def grant(self, request: bytes) -> Answer:
        parts = _parts(request)
        lease, ttl = _int(parts, 2), max(_int(parts, 1), SHORTEST_TTL)
        if lease in self.leases:
            raise Refusal("FAILED_PRECONDITION", "lease already exists")
        self.leases[lease] = ttl
        self._hanging[lease] = {}
        return Answer(self.revision, number(2, lease) + number(3, ttl))

    def revoke(self, request: bytes) -> Answer:
        lease = _int(_parts(request), 1)
        if lease not in self.leases:
            raise Refusal("NOT_FOUND", "requested lease not found")
        del self.leases[lease]
        self._writing = 0
        for key in sorted(self._hanging.pop(lease)):
            self._remove(key)
        return Answer(self._wrote(), b"")

    def _wrote(self) -> int:
        if self._writing:
            self.revision += 1
        return self.revision

    def _check(self, request: bytes) -> None:
        """Refuses a transaction as a whole, before any of it is carried out."""
        for kind, operation in self._chosen(request, self.revision):
            if kind == 4:
                self._check(operation)
            elif kind == 2:
                parts = _parts(operation)
                lease = _int(parts, 3)
                if lease and lease not in self.leases:
                    raise Refusal("NOT_FOUND", "requested lease not found")
                if parts.get(6) and self.at(_bytes(parts, 1), self.revision) is None:
                    raise Refusal("INVALID_ARGUMENT", "key not found")

    def _chosen(self, request: bytes, revision: int) -> list[tuple[int, bytes]]:
        """Returns the operations of the branch that is to be carried out, each with its kind."""
        met = self._met(request, revision)
        return [
            next(cast(Iterator[tuple[int, bytes]], fields(cast(bytes, value))))
            for field, value in fields(request)
            if field == (2 if met else 3)
        ]

    def _met(self, request: bytes, revision: int) -> bool:
        return all(
            self._compare(_parts(cast(bytes, value)), revision)
            for field, value in fields(request)
            if field == 1
        )

    def _compare(self, parts: dict[int, Value], revision: int) -> bool:
        target = parts.get(2)
        assert target in (_CREATED, _CHANGED), "only these are needed"
        assert not parts.get(1), "only whether they are equal"
        wanted = parts.get(5 if target == _CREATED else 6, 0)
        found = list(self.among(_bytes(parts, 3), _bytes(parts, 64), revision))
        if not found:
            return wanted == 0
        return all(wanted == (v.created if target == _CREATED else v.changed) for v in found)

    def _branch(self, request: bytes, before: int, revision: int) -> bytes:
        """Carries one branch out; all conditions are about the keys as they were `before`."""
        body = number(2, self._met(request, before))
        for kind, operation in self._chosen(request, before):
            if kind == 1:
                answer = self.range(operation, revision).body
            elif kind == 2:
                answer = self._put(operation)
            elif kind == 3:
                answer = self._delete(operation)
            else:
                answer = self._branch(operation, before, revision)
            body += data(3, data(kind, answer))
        return body

    def _put(self, request: bytes) -> bytes:
        parts = _parts(request)
        key = _bytes(parts, 1)
        before = self.at(key, self.revision + 1)
        lease = _int(parts, 3)
        if parts.get(6) and before is not None:
            lease = before.lease
        if before is not None and before.lease:
            self._hanging[before.lease].pop(key, None)
        if lease:
            self._hanging[lease][key] = None
        now = self.revision + 1
        created, count = (before.created, before.number) if before is not None else (now, 0)
        self._record(Version(key, _bytes(parts, 2), created, now, count + 1, lease))
        return b""

    def _delete(self, request: bytes) -> bytes:
        parts = _parts(request)
        found = list(self.among(_bytes(parts, 1), _bytes(parts, 2), self.revision + 1))
        for version in found:
            if version.lease:
                self._hanging[version.lease].pop(version.key, None)
            self._remove(version.key)
        told = b"".join(data(3, version.encode()) for version in found) if parts.get(3) else b""
        return number(2, len(found)) + told

    def _remove(self, key: bytes) -> None:
        self._record(Version(key, b"", 0, self.revision + 1, 0, 0))

    def _record(self, version: Version) -> None:
        if version.key not in self._keys:
            self._keys[version.key] = []
            insort(self._names, version.key)
        self._keys[version.key].append(version)
        self.changes.append(version)
        self._writing += 1


def only_reads(txn: bytes) -> bool:
    """Returns True if etcd answers a transaction without asking the others to agree on it."""
    operations = (cast(bytes, value) for field, value in fields(txn) if field in (2, 3))
    return all(kind == 1 for operation in operations for kind, _ in fields(operation))


def _parts(message: bytes) -> dict[int, Value]:
    return dict(fields(message))


def _bytes(parts: dict[int, Value], field: int) -> bytes:
    return cast(bytes, parts.get(field, b""))


def _int(parts: dict[int, Value], field: int) -> int:
    return cast(int, parts.get(field, 0))
