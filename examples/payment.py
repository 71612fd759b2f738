"""A payment processed once: a lock, a fence in the database, and a key that the bank knows.

Start it twice for one invoice: the second one finds it paid. It needs SQLAlchemy; --database takes
the URL of a PostgreSQL, a MySQL or a MariaDB, too.
"""

import argparse
import os
import sqlite3

from sqlalchemy import Connection, Engine, create_engine, text

import holdfast
from holdfast.fences import SqlFence


def charge(key: str, cents: int) -> None:
    """The bank, which carries out each key once, as those with an `Idempotency-Key` do."""
    bank = sqlite3.connect("bank.db", timeout=60)
    with bank:
        bank.execute("CREATE TABLE IF NOT EXISTS charges (key TEXT PRIMARY KEY, cents INTEGER)")
        bank.execute("INSERT OR IGNORE INTO charges VALUES (?, ?)", [key, cents])
    bank.close()


def is_paid(connection: Connection, invoice: int) -> bool:
    found = text("SELECT 1 FROM payments WHERE invoice = :invoice")
    return connection.execute(found, {"invoice": invoice}).first() is not None


def pay(locks: holdfast.Locks, engine: Engine, invoice: int, cents: int, ttl: float) -> bool:
    """Returns whether we paid it, or False if it was paid; raises `StaleToken` if we came too late."""
    name = f"invoice:{invoice}"
    fence = SqlFence()
    with engine.connect() as connection:
        fence.install(connection)  # your migrations do this
    with locks.lock(name, ttl=ttl, purpose="correctness", protects=fence) as lease:
        with engine.begin() as connection:
            lease.guard(connection, name)  # from here on, no older holder can write
            if is_paid(connection, invoice):
                return False
        lease.ensure()  # we may no longer hold it: then do not even ask the bank
        charge(name, cents)  # outside of a transaction: it may take long, and may happen twice
        with engine.begin() as connection:
            lease.guard(connection, name)  # in the transaction that writes: both or neither
            row = {"invoice": invoice, "cents": cents, "token": lease.token}
            connection.execute(text("INSERT INTO payments VALUES (:invoice, :cents, :token)"), row)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--invoice", type=int, default=42)
    parser.add_argument("--cents", type=int, default=1999)
    parser.add_argument(
        "--database", default="sqlite:///app.db?timeout=60", help="where payments are kept"
    )
    parser.add_argument("--ttl", type=float, default=30.0, help="the lease's TTL in seconds (30)")
    options = parser.parse_args()
    url = os.environ.get("HOLDFAST_URL") or f"sqlite://{os.getcwd()}/locks.db"
    engine = create_engine(options.database)
    with engine.begin() as connection:
        columns = "invoice BIGINT PRIMARY KEY, cents BIGINT, token BIGINT"
        connection.execute(text(f"CREATE TABLE IF NOT EXISTS payments ({columns})"))
    with holdfast.connect(url) as locks:
        try:
            paid = pay(locks, engine, options.invoice, options.cents, options.ttl)
            print("paid" if paid else "it was paid before")
        except holdfast.StaleToken as stale:
            raise SystemExit(f"nothing written, look whether it is paid: {stale}") from None
        finally:
            engine.dispose()


if __name__ == "__main__":
    main()
