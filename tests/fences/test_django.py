"""Django: the fence in the transaction of `atomic()`, on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.fences import SqlFence
from holdfast.fences.django import database, install
from stores import mariadb_server, postgres_server


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Django, set up for databases of its own."""
    import django
    from django.conf import settings
    from django.db import connections

    folder = tmp_path_factory.mktemp("django")
    server, maria = postgres_server(), mariadb_server()
    settings.configure(
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "app.db")},
            "sqlite": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "app.db")},
            "postgres": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": "127.0.0.1",
                "PORT": server.port,
                "NAME": "postgres",
                "USER": "postgres",
            },
            "mariadb": {
                "ENGINE": "mysql.connector.django",
                "HOST": "127.0.0.1",
                "PORT": maria.port,
                "NAME": maria.new_database().rpartition("/")[2],
                "USER": "root",
            },
        },
        USE_TZ=True,
        LOGGING_CONFIG=None,
    )
    django.setup()
    yield connections
    connections.close_all()


@pytest.fixture(params=["mariadb", "postgres", "sqlite"])
def using(request: pytest.FixtureRequest, databases: Any) -> Any:
    name: str = request.param
    with databases[name].cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS django_paid")
        cursor.execute("CREATE TABLE django_paid (id INTEGER)")
    yield name
    databases[name].close()


def paid(databases: Any, using: str) -> int:
    with databases[using].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_paid")
        count: int = cursor.fetchone()[0]
    return count


def test_mark_and_write_are_one_transaction_of_djangos(databases: Any, using: str) -> None:
    from django.db import transaction

    fence = install(SqlFence(table="fences_of_django"), using)
    with holdfast.connect("memory://") as locks:
        lock = locks.lock(f"{using} invoice", protects=fence)
        late = lock.acquire()
        late.release()

        def pay(lease: Any, cost: int = 1) -> None:
            lease.guard(database(using), using)
            with databases[using].cursor() as cursor:
                cursor.execute("INSERT INTO django_paid VALUES (42)")
            assert 1 // cost == 1

        with lock as lease:
            with pytest.raises(ZeroDivisionError), transaction.atomic(using):
                pay(lease, cost=0)
            assert paid(databases, using) == 0
            with transaction.atomic(using):
                assert fence.highest(database(using), using) < lease.token
                pay(lease)
            with transaction.atomic(using), lease.guard.hold(database(using), using):
                assert fence.highest(database(using), using) == lease.token
            with pytest.raises(holdfast.StaleToken), transaction.atomic(using):
                pay(late)
            assert paid(databases, using) == 1


def test_atomic_of_a_lease_is_a_guarded_transaction(databases: Any, using: str) -> None:
    from django.db import transaction

    from holdfast.contrib.django import atomic

    def pay(cost: int = 1) -> None:
        with databases[using].cursor() as cursor:
            cursor.execute("INSERT INTO django_paid VALUES (42)")
        assert 1 // cost == 1

    fence = install(SqlFence(table="fences_of_django"), using)
    name, told = f"{using} order", []
    with holdfast.connect("memory://") as locks:
        lock = locks.lock(name, protects=fence)
        late = lock.acquire()
        late.release()
        with lock as lease:
            with pytest.raises(ZeroDivisionError), atomic(lease, name, using):
                pay(cost=0)
            with transaction.atomic(using):
                assert fence.highest(database(using), name) == 0
            with atomic(lease, name, using):
                with pytest.raises(ZeroDivisionError), transaction.atomic(using):
                    pay(cost=0)  # which undoes a savepoint, and not the guard
                pay()
                transaction.on_commit(lambda: told.append("paid"), using)
            assert told == ["paid"]
            with transaction.atomic(using):
                assert fence.highest(database(using), name) == lease.token
            with pytest.raises(holdfast.StaleToken), atomic(late, name, using):
                pay()
            with pytest.raises(RuntimeError), transaction.atomic(using), atomic(lease, name, using):
                pay()
            assert paid(databases, using) == 1


def test_outside_of_atomic_it_is_refused(databases: Any, using: str) -> None:
    from django.db import transaction

    with pytest.raises(holdfast.ConfigError, match="atomic"):
        database(using)
    with transaction.atomic(using), pytest.raises(holdfast.ConfigError, match="atomic = False"):
        install(SqlFence(), using)
    with transaction.atomic(using), pytest.raises(holdfast.ConfigError, match="database"):
        SqlFence().guard(databases[using], "x", 34)  # Django's own, and not the driver's
