"""PostgreSQL: one server; and one with a standby, which follows it later."""

from __future__ import annotations

import glob
from collections.abc import Sequence

from ...guarantees import Guarantees
from ...stores.postgres.guarantees import POSTGRES
from ..servers.postgres import PostgresServer
from ..servers.sites import Site
from .database import DatabaseLab
from .failover import FailoverLab

PROGRAMS = ("postgres:postgresql", "initdb:postgresql")


class PostgresLab(DatabaseLab):
    name = "postgresql"
    title = "PostgreSQL"
    node = "postgres"
    programs = PROGRAMS
    modules = ("psycopg",)
    extra = "postgres"

    @classmethod
    def folders(cls) -> list[str]:
        return _folders()

    def start_server(self, environment: dict[str, str], site: Site) -> PostgresServer:
        return PostgresServer(environment=environment, site=site)

    @property
    def guarantees(self) -> Guarantees:
        return POSTGRES

    def url_of(self, addresses: Sequence[str]) -> str:
        return _url(addresses)


class StandbyLab(FailoverLab[PostgresServer]):
    name = "postgresql+standby"
    title = "PostgreSQL with a standby"
    programs = (*PROGRAMS, "pg_basebackup:postgresql")
    modules = ("psycopg",)
    extra = "postgres"

    @classmethod
    def folders(cls) -> list[str]:
        return _folders()

    def start_primary(self) -> PostgresServer:
        return PostgresServer()

    def start_follower(self, port: int) -> PostgresServer:
        return PostgresServer(primary=port)

    def promote(self, server: PostgresServer) -> None:
        server.promote()

    @property
    def guarantees(self) -> Guarantees:
        return POSTGRES

    def url_of(self, addresses: Sequence[str]) -> str:
        return _url(addresses)


def _folders() -> list[str]:
    return glob.glob("/usr/lib/postgresql/*/bin")


def _url(addresses: Sequence[str]) -> str:
    return f"postgresql://postgres@{addresses[0]}/postgres"
