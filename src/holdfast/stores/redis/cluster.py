"""The slots of a cluster: which server a key is on, and names that put the keys of a lock on one.

A cluster has 16,384 slots, and a script may only touch keys of one. The keys of a lock share theirs by
the name in braces. A counter of tokens must be in the same slot too, and one for each lock would be
without bounds, so there is one for each slot: its name has, in braces, a number that hashes to it.

While a slot is moved from one server to another, its keys are on both. Each script therefore names one
more key, which never exists: a server refuses a command of several keys, one of which is missing, while
the slot is on the move, so that none of our steps sees half of a lock. (The renewal of a lease
names the lock's key alone, which is on one of the two: it goes on.)
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import cache
from typing import Any, NamedTuple

from ...errors import ConfigError
from ..urls import Target
from .address import DEFAULT_PORT, Address, hosts_of, tls_of, wants_tls
from .keys import LockKeys, Naming

SLOTS = 16384
CLUSTER_OPTIONS: dict[str, Any] = {"tls": 0}


class Endpoint(NamedTuple):
    """The host and the port of one server of a cluster."""

    host: str
    port: int


def seeds_of(target: Target, settings: dict[str, Any]) -> list[Address]:
    """Returns the servers that `redis+cluster://[user:password@]host[:port],host[:port]…` names."""
    hosts, user, password, path = hosts_of(target, DEFAULT_PORT)
    if path not in ("", "0"):
        raise ConfigError(
            "a cluster has one database, so a redis+cluster:// URL ends after its hosts: "
            "redis+cluster://host1:6379,host2:6379"
        )
    tls = tls_of(wants_tls(settings), settings)
    return [Address(host, port, "", 0, user, password, tls, "cluster") for host, port in hosts]


class ClusterNaming(Naming):
    """The names of the keys of one manager, with all keys of a lock in one slot."""

    def __init__(self, namespace: str, form: Any) -> None:
        super().__init__(namespace, form)
        if isinstance(form, str) and "{" in form and not form.endswith("{*}"):
            raise ConfigError("in a cluster, key has its braces at the end: key='lock:{*}'")
        if form is None and namespace.endswith((":token", ":never", ":audit")):
            raise ConfigError(
                "in a cluster, a namespace may not end in :token, :never or :audit: its locks would "
                "have keys of the namespace before that, which counts its tokens there"
            )

    def of(self, name: str) -> LockKeys:
        lock, queue, _, _ = super().of(name)
        tag = tag_of(slot_of(lock))
        counter, guard = self.space + b":token:{%b}" % tag, self.space + b":never:{%b}" % tag
        return LockKeys(lock, queue, counter, guard)

    def audit_of(self, name: str) -> bytes:
        return self.audit + b":{%b}" % tag_of(slot_of(self.lock_key(name)))


def slot_of(key: bytes) -> int:
    """Returns the slot that `key` belongs to."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


def tag_of(slot: int) -> bytes:
    """Returns the text that, in braces, puts a key into `slot`."""
    return _tags()[slot]


@cache
def _tags() -> list[bytes]:
    """Returns for each slot the smallest number that hashes to it, as text."""
    tags = [b""] * SLOTS
    missing, number = SLOTS, 0
    while missing:
        text = b"%d" % number
        slot = crc_hqx(text, 0) % SLOTS
        if not tags[slot]:
            tags[slot] = text
            missing -= 1
        number += 1
    return tags


def slot_of_command(command: bytes) -> int:
    """Returns the slot of the first key of a script call that is packed."""
    # *N, $7, EVALSHA, $40, its hash, $n, the number of keys, then the key's own length
    at = -1
    for _ in range(7):
        at = command.index(b"\n", at + 1)
    end = command.index(b"\r", at)
    length = int(command[at + 2 : end])
    return slot_of(command[end + 2 : end + 2 + length])


def read_slots(reply: list[Any], asked: Address) -> list[Endpoint | None]:
    """Returns the server of each slot, from the reply to CLUSTER SLOTS that `asked` sent.

    An endpoint without a host stands for `asked` itself.
    """
    slots: list[Endpoint | None] = [None] * SLOTS
    for start, end, primary, *_ in reply:
        host = primary[0].decode() if primary[0] else ""
        endpoint = Endpoint(asked.host if host in ("", "?") else host, int(primary[1]))
        slots[start : end + 1] = [endpoint] * (end + 1 - start)
    return slots


def read_redirect(error: Exception, asked: Address) -> tuple[int, Endpoint]:
    """Returns slot and endpoint of `MOVED 3999 10.0.0.7:6381` or `ASK …`."""
    _, slot, where = str(error).split(" ")[:3]
    host, _, port = where.rpartition(":")
    return int(slot), Endpoint(host or asked.host, int(port))
