"""The floors on Redis: the same steps on a raw connection, packed beforehand, without any safety."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from hiredis import Reader

from holdfast.model import Label
from holdfast.stores._sync.contract import Terms
from holdfast.stores.redis.commands import Commands
from holdfast.stores.redis.keys import Naming
from holdfast.stores.redis.lua import scripts
from holdfast.stores.redis.wire.protocol import bulk, pack
from holdfast.stores.redlock.commands import Commands as RedlockCommands
from holdfast.stores.redlock.membership import read_marker

NOTHING: Any = ...
COMPARE_AND_DELETE = (
    b"if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end"
)


class RawSocket:
    """One TCP connection and the parser."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = Reader(notEnoughData=NOTHING)

    def __call__(self, command: bytes) -> Any:
        self.sock.sendall(command)
        return self.read()

    def read(self) -> Any:
        reader = self.reader
        while (reply := reader.gets()) is NOTHING:
            reader.feed(self.sock.recv(65536))
        return reply


class RawMultiplexed(asyncio.BufferedProtocol):
    """One asyncio connection: what all coroutines send goes out together, answers in their order.

    It reads into a buffer of its own, as ours does: otherwise the loop gets a quarter of a megabyte for
    each read, whose cost depends on what else is in the memory of the process.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reader: Any = Reader(notEnoughData=NOTHING)
        self.pending: deque[asyncio.Future[Any]] = deque()
        self.unsent: list[bytes] = []
        self.transport: Any = None
        self.buffer = bytearray(65536)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.reader.feed(self.buffer, 0, nbytes)
        while (reply := self.reader.gets()) is not NOTHING:
            self.pending.popleft().set_result(reply)

    def send(self, command: bytes) -> asyncio.Future[Any]:
        future = self.loop.create_future()
        self.pending.append(future)
        if self.unsent:
            self.unsent.append(command)
        elif len(self.pending) > 1:
            self.unsent.append(command)
            self.loop.call_soon(self.flush)
        else:
            self.transport.write(command)
        return future

    def flush(self) -> None:
        unsent, self.unsent = self.unsent, []
        self.transport.write(b"".join(unsent))


def bare_pair(call: Callable[[bytes], Any], key: str) -> tuple[bytes, bytes]:
    """Returns `SET k v NX PX` and the compare-and-delete script, as is usual."""
    sha = call(pack(b"SCRIPT", b"LOAD", COMPARE_AND_DELETE))
    name = key.encode()
    return (
        pack(b"SET", name, b"raw-owner", b"NX", b"PX", b"30000"),
        pack(b"EVALSHA", sha, b"1", name, b"raw-owner"),
    )


def own_pair(call: Callable[[bytes], Any], name: str) -> tuple[bytes, bytes]:
    """Returns our own two scripts with everything packed, the owner too."""
    for script in scripts().values():
        call(script.load)
    commands = Commands(Naming("raw", None), 1.0, 2.0)
    owner = "0123456789abcdef01234567"
    terms = Terms(name, 30.0, Label("host", 1, ""))
    no_channel, end = bulk(b""), bulk(owner.encode())
    return commands.acquire(terms).command + no_channel + end, commands.release(name, owner)


def redlock_pair(call: Callable[[bytes], Any], name: str) -> tuple[bytes, bytes]:
    """Returns the two scripts of a Redlock node that votes, packed likewise."""
    commands = RedlockCommands("holdfast", 1.0)
    marker = read_marker(call(pack(b"GET", commands.marker_key)))
    owner = bulk(b"0123456789abcdef01234567")
    prefixes = commands.prefixes_for(Terms(name, 30.0, Label("host", 1, "")))
    return prefixes.take + owner + bulk(marker.incarnation), prefixes.release + owner


ENTER = b"""if redis.call('SET', KEYS[1], ARGV[1], 'NX') then return 1 end
redis.call('RPUSH', KEYS[2], ARGV[1]) return 0"""
LEAVE = b"""local next = redis.call('LPOP', KEYS[2])
if next then redis.call('SET', KEYS[1], next) redis.call('LPUSH', next, '1')
else redis.call('DEL', KEYS[1]) end return 1"""


def queue_commands(call: Callable[[bytes], Any], key: bytes) -> tuple[bytes, bytes, bytes]:
    """Returns the commands of a raw queue (ask, wait, give), without tokens, TTLs or heartbeats."""
    enter, leave = (call(pack(b"SCRIPT", b"LOAD", text)) for text in (ENTER, LEAVE))
    me = key + os.urandom(8).hex().encode()
    return (
        pack(b"EVALSHA", enter, b"2", key, key + b":q", me),
        pack(b"BLPOP", me, b"0"),
        pack(b"EVALSHA", leave, b"2", key, key + b":q"),
    )


class RawQueue:
    """A client of a raw queue."""

    def __init__(self, port: int) -> None:
        self._raw = RawSocket(port)
        self._ask, self._wait, self._give = queue_commands(self._raw, b"floor")

    def take(self) -> None:
        if self._raw(self._ask) == 0:
            self._raw(self._wait)

    def give(self) -> None:
        self._raw(self._give)

    def waiters(self) -> int:
        found: int = self._raw(pack(b"LLEN", b"floor:q"))
        return found
