"""A MySQL or MariaDB database as the store needs it: connections and tables."""

from __future__ import annotations

from ...clock import system_clock
from ..sql.connections import Connection
from . import schema
from .address import Address
from .connection import MysqlConnection


class MysqlDatabase:
    """A database at one address."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._clock = system_clock()

    @property
    def address(self) -> str:
        return str(self._address)

    def connection(self) -> MysqlConnection:
        return MysqlConnection(self._address, self._clock)

    def install(self, connection: Connection, deadline: float) -> None:
        assert isinstance(connection, MysqlConnection)
        schema.install(connection, deadline)
