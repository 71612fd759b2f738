"""A payment processed once, in PostgreSQL: one charge and one row, whatever happens to who pays."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from recipes.players import TTL, Cast, Player
from stores import postgres_server


class Payers(Cast):
    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, "payment")
        self.url = url
        self.database = url.replace("postgresql:", "postgresql+psycopg:", 1)

    def payer(self, invoice: int = 42) -> Player:
        return self.player("--database", self.database, "--invoice", str(invoice))

    def charged(self) -> Player:
        """Returns a payer that stands still after the bank was asked."""
        payer = self.player("--database", self.database, "--ttl", str(TTL), stop_at="after:charge")
        payer.stopped()
        return payer

    def charges(self) -> list[tuple[str, int]]:
        """Returns what the bank has charged for the invoice."""
        with closing(sqlite3.connect(self.folder / "bank.db")) as bank:
            found = bank.execute("SELECT key, cents FROM charges WHERE key = 'invoice:42'")
            return found.fetchall()

    def payments(self) -> list[tuple[int, int]]:
        """Returns what the database says was paid for the invoice."""
        found = text("SELECT invoice, cents FROM payments WHERE invoice = 42")
        engine = create_engine(self.database)
        with engine.connect() as connection:
            rows = connection.execute(found).fetchall()
        engine.dispose()
        return [(row[0], row[1]) for row in rows]


@pytest.fixture
def payers(tmp_path: Path) -> Iterator[Payers]:
    made = Payers(tmp_path, postgres_server().new_database())
    try:
        yield made
    finally:
        made.clear()


def paid_once(payers: Payers) -> None:
    assert payers.charges() == [("invoice:42", 1999)]
    assert payers.payments() == [(42, 1999)]


def test_of_several_one_pays(payers: Payers) -> None:
    payers.payer(invoice=7).succeeded()  # and makes the tables
    several = [payers.payer() for _ in range(3)]
    said = sorted(line for one in several for line in one.succeeded())
    assert said == ["it was paid before", "it was paid before", "paid"]
    paid_once(payers)


def test_one_that_was_killed_after_the_charge_has_not_charged_twice(payers: Payers) -> None:
    first = payers.charged()
    assert payers.payments() == []
    first.kill()
    assert payers.payer().succeeded() == ["paid"]
    paid_once(payers)
    assert payers.payer().succeeded() == ["it was paid before"]


def test_one_that_was_paused_after_the_charge_writes_nothing(payers: Payers) -> None:
    first = payers.charged()
    first.freeze()
    assert payers.payer().succeeded() == ["paid"]
    first.thaw()
    first.go()
    status, _ = first.ended()
    assert status == 1
    assert "nothing written" in first.complaints()
    paid_once(payers)
