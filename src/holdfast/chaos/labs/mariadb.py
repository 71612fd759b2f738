"""MariaDB: one server; and one with a replica, which follows it later."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...guarantees import Guarantees
from ...stores.mysql.guarantees import MYSQL
from ..servers.mariadb import MariaServer
from ..servers.rooms import Rooms
from ..servers.sites import Site
from .database import DatabaseLab
from .failover import FailoverLab

LOGGING = ("--log-bin", "--log-slave-updates", "--binlog-format=ROW")
"""The settings of a server that others may follow."""
PROGRAMS = ("mariadbd:mariadb-server", "mariadb-install-db:mariadb-server")


class MariaLab(DatabaseLab):
    name = "mysql"
    title = "MariaDB"
    node = "mariadb"
    programs = PROGRAMS
    modules = ("pymysql",)
    extra = "mysql"

    def start_server(self, environment: dict[str, str], site: Site) -> MariaServer:
        return MariaServer(environment=environment, site=site, on_disk=True)

    @property
    def guarantees(self) -> Guarantees:
        return MYSQL

    def url_of(self, addresses: Sequence[str]) -> str:
        return _url(addresses)


class MariaReplicaLab(FailoverLab[MariaServer]):
    name = "mysql+replica"
    title = "MariaDB with a replica"
    programs = PROGRAMS
    modules = ("pymysql",)
    extra = "mysql"

    def __init__(self, rooms: Rooms | None = None) -> None:
        self._numbers = itertools.count(1)
        super().__init__(rooms)

    def start_primary(self) -> MariaServer:
        return MariaServer(*LOGGING, f"--server-id={next(self._numbers)}")

    def start_follower(self, port: int) -> MariaServer:
        server = self.start_primary()
        try:
            server.follow(port)
        except BaseException:
            server.stop()
            raise
        return server

    def promote(self, server: MariaServer) -> None:
        server.promote()

    @property
    def guarantees(self) -> Guarantees:
        return MYSQL

    def url_of(self, addresses: Sequence[str]) -> str:
        return _url(addresses)


def _url(addresses: Sequence[str]) -> str:
    return f"mysql://root@{addresses[0]}/app"
