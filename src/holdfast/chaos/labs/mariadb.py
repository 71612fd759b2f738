"""MariaDB: one server; and one with a replica, which follows it later."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...guarantees import Guarantees
from ...stores.mysql.guarantees import MYSQL
from ..servers.mariadb import MariaServer
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

    def start_server(self, environment: dict[str, str]) -> MariaServer:
        return MariaServer(environment=environment)

    @property
    def guarantees(self) -> Guarantees:
        return MYSQL

    def url_of(self, ports: Sequence[int]) -> str:
        return _url(ports)


class MariaReplicaLab(FailoverLab[MariaServer]):
    name = "mysql+replica"
    title = "MariaDB with a replica"
    programs = PROGRAMS
    modules = ("pymysql",)
    extra = "mysql"

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        super().__init__()

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

    def url_of(self, ports: Sequence[int]) -> str:
        return _url(ports)


def _url(ports: Sequence[int]) -> str:
    return f"mysql://root@127.0.0.1:{ports[0]}/app"
