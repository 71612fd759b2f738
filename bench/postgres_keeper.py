"""Memory and processor time of one process that keeps ten thousand leases on PostgreSQL."""

from __future__ import annotations

from .keeper import blocking, in_asyncio
from .measure import Row, Setting
from .sql_server import postgres


def figure(setting: Setting) -> list[Row]:
    window = 11.0 if setting.quick else 30.0
    with postgres() as server:
        rows = blocking(server.new_database(), window, "psycopg")
        if not setting.quick:
            rows += in_asyncio(server.new_database(), window, "psycopg")
    return rows
