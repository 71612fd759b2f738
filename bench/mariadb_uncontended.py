"""Acquire and release locks that nobody else wants, on MariaDB."""

from __future__ import annotations

from contextlib import ExitStack

import holdfast

from .measure import Row, Setting, interleave
from .sql_server import mariadb
from .sql_uncontended import AIO, OURS, RAW, beside, blocking, in_asyncio, judged, raw

TARGET = 1.4


def figure(setting: Setting) -> list[Row]:
    rounds = 6 if setting.quick else 40
    with ExitStack() as stack:
        server = stack.enter_context(mariadb())
        url = server.url.replace("mysql:", "mariadb:")
        connection = stack.enter_context(server.connect(autocommit=True))
        locks = stack.enter_context(holdfast.connect(url))
        batches = {
            RAW: raw(connection),
            OURS: blocking(locks),
            AIO: in_asyncio(url, stack),
        }
        samples = interleave(batches, rounds, 20)
    return [
        judged("acquire + release", samples, OURS, RAW, TARGET),
        beside("  asyncio", samples, AIO, RAW),
    ]
