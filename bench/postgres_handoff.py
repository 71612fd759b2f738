"""One lock and many processes on PostgreSQL, beside pals, and an advisory lock by hand."""

from __future__ import annotations

import os
import sys

from .contest import Shares, contend, serve_turns, turns_of
from .measure import Row, Setting, compare, ratio
from .postgres_peers import ADVISORY, KINDS, OURS, PALS
from .sql_server import postgres

JUDGED = 32
"""Contenders, as many as the targets are about."""


def figure(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    seconds, rounds = (1.0, 1) if setting.quick else (2.0, 6)
    for processes in (2, 8, JUDGED):
        with postgres() as server:
            shares = contend(
                "bench.postgres_handoff", tuple(KINDS), server.url, processes, seconds, rounds
            )
        rows += _rows(processes, shares)
    return rows


def _rows(processes: int, shares: Shares) -> list[Row]:
    rates = shares.rates
    found, fair = ratio(rates[OURS], rates[PALS]), shares.jain(OURS)
    judged = processes == JUDGED
    return [
        Row(
            f"{processes} processes (rate)",
            shares.shown(OURS),
            f"{PALS} {shares.shown(PALS)}",
            found,
            "≥ 1, Jain ≥ 0.99" if judged else "",
            (found >= 1 and fair >= 0.99) if judged else None,
            shares._asdict(),
        ),
        compare(
            "  beside",
            shares.shown(OURS),
            f"{ADVISORY} {shares.shown(ADVISORY)}",
            ratio(rates[OURS], rates[ADVISORY]),
        ),
    ]


if __name__ == "__main__":
    serve_turns(turns_of(KINDS[sys.argv[1]](sys.argv[2])))
    os._exit(0)  # the last one out has nobody to hand to
