"""Servers for the figures on databases, with their default durability: a commit is on the disk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .measure import ROOT

sys.path.insert(0, str(ROOT / "tests"))  # the throw-away servers

RAW_TABLE = (
    "CREATE TABLE raw_lock (name varchar(200) PRIMARY KEY, owner varchar(40), expires bigint)"
)
TAKE = "INSERT INTO raw_lock VALUES (%s, %s, %s)"
GIVE = "DELETE FROM raw_lock WHERE name = %s AND owner = %s"


@contextmanager
def postgres() -> Iterator[Any]:
    """Runs a PostgreSQL for the `with`; yields it."""
    from holdfast.chaos.servers.postgres import PostgresServer

    server = PostgresServer(on_disk=True)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def mariadb() -> Iterator[Any]:
    """Runs a MariaDB for the `with`; yields it."""
    from holdfast.chaos.servers.mariadb import MariaServer

    server = MariaServer(on_disk=True)
    try:
        yield server
    finally:
        server.stop()
