"""What a forked child inherits of an event loop is not its parent's any more."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast._runtime.aio import descriptor, renew_in_children
from holdfast.forked_sockets import end_in_children

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Connection(asyncio.Protocol):
    """A connection that says which bytes it was sent."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.received = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        end_in_children(self)

    def fileno(self) -> int:
        return descriptor(self._transport)

    def data_received(self, data: bytes) -> None:
        self.received.set_result(data)


@pytest.fixture
def limit() -> Iterator[None]:
    """Puts back the limit of descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def use_up() -> None:
    """Leaves this process without another descriptor."""
    first = os.dup(0)
    os.close(first)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first, most))


@pytest.mark.parametrize("descriptors", ["some", "none"])
async def test_a_connection_in_a_forked_child_is_at_its_end(descriptors: str, limit: None) -> None:
    ours, peer = socket.socketpair()
    with peer:
        made, connection = await asyncio.get_running_loop().create_connection(Connection, sock=ours)
        sock = made.get_extra_info("socket")
        peer.sendall(b"to the parent")
        if descriptors == "none":
            use_up()
        pid = os.fork()
        if not pid:
            with suppress(OSError):
                os.write(sock.fileno(), b"of the child")
            with suppress(OSError):
                os._exit(os.read(sock.fileno(), 99) != b"")
            os._exit(0)
        assert os.waitpid(pid, 0) == (pid, 0)
        assert await connection.received == b"to the parent"
        made.write(b"of the parent")
        assert peer.recv(99) == b"of the parent"
        made.close()
        await asyncio.sleep(0)


async def test_a_loop_in_a_forked_child_has_a_poller_of_its_own() -> None:
    loop = asyncio.get_running_loop()
    renew_in_children(loop)
    reader, writer = os.pipe()
    heard = asyncio.Event()
    loop.add_reader(reader, heard.set)
    pid = os.fork()
    if not pid:
        loop.remove_reader(reader)
        os._exit(0)
    assert os.waitpid(pid, 0) == (pid, 0)
    os.write(writer, b"x")
    await heard.wait()
    loop.remove_reader(reader)
    os.close(reader)
    os.close(writer)
