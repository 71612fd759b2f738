"""A blocking connection to Redis, by itself."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from threading import Thread

import pytest

import holdfast
from holdfast.chaos.servers.redis import certificate
from holdfast.clock import BootClock
from holdfast.stores.redis.address import Address
from holdfast.stores.redis.wire.blocking_connection import TICK, Connection
from holdfast.stores.redis.wire.protocol import check_hello
from worlds.threads import pause


def test_a_connection_that_was_never_used_is_looked_at_without_waiting() -> None:
    clock = BootClock()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address("127.0.0.1", server.getsockname()[1], "", 0, "", "", None)
        connection = Connection(address, clock, clock.now() + 30.0)
        peer, _ = server.accept()
        began = clock.now()
        assert connection.is_alive()
        peer.close()
        while connection.is_alive():
            assert clock.now() - began < 10.0
        assert clock.now() - began < 10.0
        connection.close()


def test_an_answer_that_is_none_ends_the_connection() -> None:
    """Does as its twin in `test_redis_nonsense`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(1)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    peer.recv(65536)

        thread = Thread(target=answer)
        thread.start()
        try:
            url = f"redis://127.0.0.1:{server.getsockname()[1]}"
            with pytest.raises(holdfast.BackendUnavailable, match="not as a Redis server"):
                holdfast.connect(url).lock("x").acquire()
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("secure", [False, True])
def test_much_is_sent_at_once_also_where_it_is_not_read_at_once(
    secure: bool, tmp_path: Path
) -> None:
    clock = BootClock()
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    trusted = ssl.create_default_context(cafile=cert)
    command = b"x" * 20_000_000  # more than any buffer on the way takes

    def answer() -> None:
        peer, _ = server.accept()
        with context.wrap_socket(peer, server_side=True) if secure else peer as line:
            pause(3 * TICK)
            left = len(command)
            while left > 0:
                left -= len(line.recv(65536))
            line.sendall(b"%1\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n+OK\r\n")
            line.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=answer, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        address = Address("127.0.0.1", port, "", 0, "", "", trusted if secure else None)
        connection = Connection(address, clock, clock.now() + 30.0)
        assert connection.call(command, clock.now() + 30.0, clock.now()) == b"OK"
        connection.close()
        thread.join()


@pytest.mark.parametrize("version", [b"6.0.16", b"5.0.14", b"6.1.240"])
def test_a_server_that_is_too_old_is_refused(version: bytes) -> None:
    address = Address("db.example", 6379, "", 0, "user", "s3cret", None)
    with pytest.raises(holdfast.ConfigError, match=r"Redis 6\.2") as raised:
        check_hello({b"version": version, b"mode": b"standalone"}, address)
    assert "db.example:6379" in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "version", [b"6.2.0", b"7.0.15", b"8.1.2", b"255.255.255", b"unstable", b""]
)
def test_a_server_that_is_new_enough_is_not(version: bytes) -> None:
    address = Address("db.example", 6379, "", 0, "", "", None)
    check_hello({b"version": version, b"mode": b"standalone"}, address)
