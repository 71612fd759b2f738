"""An etcd of one member for a figure, ended with it; and the calls that one would make by hand."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc  # type: ignore[import-not-found, import-untyped, unused-ignore]

from holdfast.stores.etcd.wire import messages
from holdfast.stores.etcd.wire.codec import data, fields, number

LIMIT = 20.0
LEASE_TTL = 600


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """Yields the port of a server."""
    program = shutil.which("etcd")
    if program is None:
        raise RuntimeError("these figures need etcd: apt-get install etcd-server")
    port, peer_port = _free_port(), _free_port()
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    command = [program, "--data-dir", str(folder / "etcd"), "--log-level", "error"]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command += ["--initial-cluster", f"default={peer}", "--logger", "zap"]
    machine = {"aarch64": "arm64", "armv7l": "arm"}.get(platform.machine(), "")
    environment = {**os.environ, "ETCD_UNSUPPORTED_ARCH": machine} if machine else None
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command, stdout=quiet, stderr=quiet, env=environment, start_new_session=True
    )
    try:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        grpc.channel_ready_future(channel).result(timeout=LIMIT)
        channel.unary_unary(messages.RANGE)(messages.range_of(b"x"), timeout=LIMIT)
        channel.close()
        yield port
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Raw:
    """One channel, a lease that lasts, and the calls by hand."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._txn = self._channel.unary_unary(messages.TXN)
        self._delete = self._channel.unary_unary(messages.DELETE)
        self._lock = self._channel.unary_unary("/v3lockpb.Lock/Lock")
        self._unlock = self._channel.unary_unary("/v3lockpb.Lock/Unlock")
        self._lease = int.from_bytes(os.urandom(7), "big")
        grant = self._channel.unary_unary(messages.LEASE_GRANT)
        grant(messages.lease_grant(self._lease, LEASE_TTL), timeout=LIMIT)

    def floor(self) -> Callable[[], None]:
        """Returns a turn: a transaction that puts a key if it is not there, and its deletion."""
        take, give = _floor(self._lease)

        def turn() -> None:
            self._txn(take, timeout=LIMIT)
            self._delete(give, timeout=LIMIT)

        return turn

    def take(self, name: bytes) -> bytes:
        """Makes etcd's own Lock call, which waits in the server; returns the key to give back."""
        request = data(1, name) + number(2, self._lease)
        answer = dict(fields(self._lock(request, timeout=60.0)))
        key = answer[2]
        assert isinstance(key, bytes)
        return key

    def give(self, key: bytes) -> None:
        self._unlock(data(1, key), timeout=LIMIT)

    def close(self) -> None:
        self._channel.close()


class AioRaw:
    """The calls by hand in asyncio, as gRPC has them there; made inside the event loop."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self._txn = self._channel.unary_unary(messages.TXN)
        self._delete = self._channel.unary_unary(messages.DELETE)

    async def floor(self) -> Callable[[], Awaitable[None]]:
        """Returns a turn as that of `Raw.floor`."""
        lease = int.from_bytes(os.urandom(7), "big")
        grant = self._channel.unary_unary(messages.LEASE_GRANT)
        await grant(messages.lease_grant(lease, LEASE_TTL), timeout=LIMIT)
        take, give = _floor(lease)

        async def turn() -> None:
            await self._txn(take, timeout=LIMIT)
            await self._delete(give, timeout=LIMIT)

        return turn

    async def close(self) -> None:
        await self._channel.close()


def _floor(lease: int) -> tuple[bytes, bytes]:
    """Returns the requests of a turn: put a key on a lease if it is not there, and delete it."""
    key = b"/raw/" + os.urandom(8).hex().encode()
    value = b"x" * 90
    put = messages.put(key, value, messages.on_lease(lease))
    return messages.absent(key) + messages.then(put), messages.delete_one(key)
