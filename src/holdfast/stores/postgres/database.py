"""A PostgreSQL database as the store needs it: connections, tables, and messages to waiters."""

from __future__ import annotations

import select

from ...clock import system_clock
from ..connecting import connecting
from ..sql.connections import Connection
from . import schema
from .address import Address
from .connection import PostgresConnection


class PostgresDatabase:
    """A database at one address."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._clock = system_clock()

    @property
    def address(self) -> str:
        return str(self._address)

    def connection(self) -> PostgresConnection:
        return PostgresConnection(self._address, self._clock)

    def install(self, connection: Connection, deadline: float) -> None:
        assert isinstance(connection, PostgresConnection)
        schema.install(connection, deadline)

    def listen(self, channel: str, deadline: float) -> PostgresConnection:
        """Returns a connection that listens on a channel, which is a name of our own making."""
        connection = self.connection()
        try:
            with connecting():
                connection.open(deadline)
            connection.run(f'LISTEN "{channel}"'.encode(), [], deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def hears(
        self, listening: PostgresConnection, channel: str, text: str, deadline: float
    ) -> bool:
        """Waits for a message; returns False if it has not come by the deadline."""
        while (channel, text) not in listening.notes():
            left = deadline - self._clock.now()
            poll = select.poll()
            poll.register(listening.fileno(), select.POLLIN)
            if left <= 0 or not poll.poll(left * 1000 + 1):
                return False
        return True
