"""Acquire and release locks that nobody else wants, on PostgreSQL; and beside a million names.

The million names are in a database of their own on the same server, so that both take turns.
"""

from __future__ import annotations

from contextlib import ExitStack

import psycopg

import holdfast

from .measure import Row, Setting, interleave
from .postgres_peers import ADVISORY, PALS, advisory, pals
from .sql_server import postgres
from .sql_uncontended import (
    AIO,
    OURS,
    RAW,
    beside,
    blocking,
    fresh_names,
    in_asyncio,
    judged,
    raw,
    turns,
)

TARGET, CROWDED_TARGET = 1.3, 1.2
NAMES = 1_000_000
FEW, FRESH, FRESH_FEW = "few names", "fresh names", "fresh names among few"
FILL = """
    INSERT INTO holdfast_lock SELECT 'default' || chr(31) || 'name ' || number,
            stamp, 0, stamp, -1, 0, 0, stamp
        FROM generate_series(1, %s) number,
            (SELECT (extract(epoch FROM now()) * 1000000)::bigint AS stamp) clock
"""


def figure(setting: Setting) -> list[Row]:
    rounds = 6 if setting.quick else 40
    names = NAMES // 10 if setting.quick else NAMES
    with ExitStack() as stack:
        server = stack.enter_context(postgres())
        connection = stack.enter_context(server.connect(autocommit=True))
        locks = stack.enter_context(holdfast.connect(server.url))
        samples = interleave(
            {
                RAW: raw(connection),
                OURS: blocking(locks),
                AIO: in_asyncio(server.url, stack),
                ADVISORY: turns(advisory(server.url)),
                PALS: turns(pals(server.url)),
            },
            rounds,
            40,
        )
        crowded_url = server.new_database()
        crowded = stack.enter_context(holdfast.connect(crowded_url))
        crowded.lock("bench").acquire().release()
        with psycopg.connect(crowded_url, autocommit=True) as filler:
            filler.execute(FILL, (names,))
            filler.execute("VACUUM ANALYZE")
        among = interleave(
            {
                FEW: blocking(locks),
                OURS: blocking(crowded),
                FRESH_FEW: fresh_names(locks),
                FRESH: fresh_names(crowded),
            },
            rounds,
            40,
        )
    return [
        judged("acquire + release", samples, OURS, RAW, TARGET),
        beside("  asyncio", samples, AIO, RAW),
        beside("  raw advisory lock", samples, ADVISORY, RAW),
        beside("  pals", samples, PALS, RAW),
        judged(f"among {names:,} names", among, OURS, FEW, CROWDED_TARGET),
        judged("  a fresh name each time", among, FRESH, FRESH_FEW, CROWDED_TARGET),
    ]
