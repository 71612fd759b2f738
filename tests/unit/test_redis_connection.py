"""What a blocking connection to Redis does by itself."""

from __future__ import annotations

import socket

from holdfast.clock import BootClock
from holdfast.redis.address import Address
from holdfast.redis.connection import Connection


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
