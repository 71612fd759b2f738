"""A migration that runs once: Django's `migrate`, started by every machine of a deployment at once.

Start it twice: the second one finds nothing to do. Here it migrates the tables of Django's own users.
"""

import argparse
import os
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.db.migrations import Migration, RunPython
from django.db.models.signals import pre_migrate

import holdfast
from holdfast.fences import SqlFence
from holdfast.fences.django import database, install


def fence_each(lease: holdfast.Lease, plan: list[tuple[Migration, bool]]) -> None:
    """Has each migration show the lease first, inside of its own transaction."""

    def show(apps: Any, editor: Any) -> None:
        lease.guard(database(), "schema")  # raises StaleToken, and the migration is rolled back

    for migration, _ in plan:
        if migration.atomic and not getattr(migration, "fenced", False):
            migration.operations = [RunPython(show, show), *migration.operations]
            migration.fenced = True


def migrate(locks: holdfast.Locks, ttl: float) -> None:
    """Runs the migrations that are missing; waits for whoever is at it."""
    fence = install(SqlFence())  # makes its table, once
    with locks.lock("schema", ttl=ttl, purpose="correctness", protects=fence) as lease:

        def fence_all(plan: list[tuple[Migration, bool]], **_: Any) -> None:
            fence_each(lease, plan)

        pre_migrate.connect(fence_all)
        call_command("migrate", interactive=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ttl", type=float, default=30.0, help="the lease's TTL in seconds (30)")
    options = parser.parse_args()
    settings.configure(  # your settings.py has this
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": "app.db",
                "OPTIONS": {"timeout": 60},
            }
        },
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    )
    django.setup()
    url = os.environ.get("HOLDFAST_URL") or f"sqlite://{os.getcwd()}/locks.db"
    with holdfast.connect(url) as locks:
        try:
            migrate(locks, options.ttl)
        except holdfast.StaleToken as stale:
            raise SystemExit(f"another machine went on with it: {stale}") from None


if __name__ == "__main__":
    main()
