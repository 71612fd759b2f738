"""A migration that runs once: Alembic's `upgrade`, started by every machine of a deployment at once.

Start it twice: the second one finds nothing to do. It makes a small project in ./migrations, unless
you have one there.
"""

import argparse
import os
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine

import holdfast
from holdfast.fences import SqlFence

# Alembic's own recipe for a connection that is given to it.
ENV = """
from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
"""
FIRST = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade():
    op.create_table("prices", sa.Column("item", sa.Integer), sa.Column("cents", sa.Integer))
    op.execute("INSERT INTO prices VALUES (1, 500)")
"""
SECOND = """
from alembic import op

revision, down_revision = "0002", "0001"


def upgrade():
    op.execute("UPDATE prices SET cents = cents * 2")  # which must not happen twice
"""


def make_project(folder: Path) -> None:
    """Makes a project with two migrations. You have one already."""
    (folder / "versions").mkdir(parents=True, exist_ok=True)
    for name, source in (("env", ENV), ("versions/0001", FIRST), ("versions/0002", SECOND)):
        (folder / f"{name}.py").write_text(source)


def upgrade(lease: holdfast.Lease, engine: Engine, config: Config) -> None:
    with engine.begin() as connection:  # one transaction for all of them
        lease.guard(connection, "schema")  # raises StaleToken if somebody newer was here
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def migrate(locks: holdfast.Locks, engine: Engine, config: Config, ttl: float) -> None:
    """Runs the migrations that are missing; waits for whoever is at it."""
    fence = SqlFence()
    with engine.connect() as connection:
        fence.install(connection)  # makes its table, once
    with locks.lock("schema", ttl=ttl, purpose="correctness", protects=fence) as lease:
        upgrade(lease, engine, config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--database", default="sqlite:///app.db?timeout=60", help="what is migrated"
    )
    parser.add_argument("--ttl", type=float, default=30.0, help="the lease's TTL in seconds (30)")
    options = parser.parse_args()
    folder = Path("migrations")
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    url = os.environ.get("HOLDFAST_URL") or f"sqlite://{os.getcwd()}/locks.db"
    engine = create_engine(options.database)
    with holdfast.connect(url) as locks:
        with locks.lock("project"):
            if not folder.exists():
                make_project(folder)
        try:
            migrate(locks, engine, config, options.ttl)
            print("the schema is at", ScriptDirectory.from_config(config).get_current_head())
        except holdfast.StaleToken as stale:
            raise SystemExit(f"another machine went on with it: {stale}") from None
        finally:
            engine.dispose()


if __name__ == "__main__":
    main()
