"""From the release in one process to the grant in another, on PostgreSQL, with one waiter."""

from __future__ import annotations

import os
import sys

from .contest import serve_wakeups, wake
from .measure import Row, Setting, compare, duration, quantile
from .postgres_peers import ADVISORY, KINDS, OURS
from .sql_server import postgres

TARGET = 2.5


def figure(setting: Setting) -> list[Row]:
    rounds = 20 if setting.quick else 200
    with postgres() as server:
        takes = {kind: make(server.url) for kind, make in KINDS.items()}
        found = wake("bench.postgres_wakeup", takes, server.url, rounds)
    middle = {kind: quantile(values, 0.5) for kind, values in found.items()}
    rows: list[Row] = []
    for kind, value in middle.items():
        if kind == ADVISORY:
            continue
        beside, factor = f"{ADVISORY} {duration(middle[ADVISORY])}", value / middle[ADVISORY]
        if kind == OURS:
            met, numbers = factor <= TARGET, {"samples": found}
            what, target = "wake-up of a waiter, p50", f"≤ {TARGET:g}"
            rows.insert(0, Row(what, duration(value), beside, factor, target, met, numbers))
        else:
            rows.append(compare(f"  {kind}", duration(value), beside, factor))
    return rows


if __name__ == "__main__":
    serve_wakeups(KINDS[sys.argv[1]](sys.argv[2]))
    os._exit(0)
