"""A project of Django's in a process of its own: its management commands hold locks."""

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import django
from django.conf import settings

FOLDER = Path(os.environ["SITE_FOLDER"])
settings.configure(
    HOLDFAST={"url": os.environ["SITE_STORE"], "namespace": "site"},
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "app.db"}},
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.core.management.base import BaseCommand, CommandError  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from django.test.utils import override_settings  # noqa: E402

import holdfast  # noqa: E402
import holdfast.contrib.django as contrib  # noqa: E402
from holdfast.contrib.django import (  # noqa: E402
    CommandLock,
    LockedCommand,
    atomic,
    install,
    locks,
)
from holdfast.fences import SqlFence  # noqa: E402

WRONG: list[Any] = [
    "redis://x",
    {"url": "memory://", "names": 1},
    {1: 2, "url": "memory://"},
    {"namespace": "shop"},
    {"url": ""},
]


class Count(LockedCommand):
    """Adds one to a file, in a way that loses an addition if two do it at once."""

    lock = "counter:{number}"

    def add_arguments(self, parser: Any) -> None:
        super().add_arguments(parser)
        parser.add_argument("number", type=int)

    def handle(self, number: int, **options: Any) -> None:
        file = FOLDER / str(number)
        before = int(file.read_text()) if file.exists() else 0
        time.sleep(0.05)
        file.write_text(str(before + 1))
        self.stdout.write(f"counted {before + 1} {self.lease.token}")


class Stay(LockedCommand):
    def handle(self, **options: Any) -> None:
        self.stdout.write(f"held {self.lease.name}")
        try:
            while True:
                time.sleep(0.1)
                self.lease.ensure()
        finally:
            self.stdout.write("cleaned up")


class Lose(CommandLock, BaseCommand):  # type: ignore[misc]
    """Loses its lock."""

    def handle(self, **options: Any) -> None:
        locks().force_release(self.lease.name)


class Check(BaseCommand):  # type: ignore[misc]
    """Looks at what needs no second process."""

    def handle(self, **options: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE paid (id INTEGER)")
        fence = install(SqlFence())
        lock = locks().lock("invoice:42", purpose="correctness", protects=fence)
        late = lock.acquire()
        late.release()
        with lock as lease:
            with atomic(lease, "invoice:42"):
                self.pay()
            for stale in (late, lease):
                try:
                    with atomic(stale, "invoice:42"):
                        self.pay()
                        assert stale is not lease, "an error of the body's own"
                except (holdfast.StaleToken, AssertionError) as error:
                    self.stdout.write(f"{type(error).__name__} paid {self.paid()}")
            try:
                with transaction.atomic(), atomic(lease, "invoice:42"):
                    self.pay()
            except RuntimeError:
                self.stdout.write(f"nested paid {self.paid()}")
            transaction.set_autocommit(False)
            try:
                with atomic(lease, "invoice:42"):
                    self.pay()
            except RuntimeError:
                self.stdout.write(f"without autocommit paid {self.paid()}")
            transaction.rollback()
            transaction.set_autocommit(True)

        manager = locks()
        assert locks() is manager
        manager.close()
        with locks().lock("x") as lease:  # a new one
            assert lease.held
        assert locks() is not manager
        with override_settings(HOLDFAST=None, HOLDFAST_URL="memory://other"):
            assert locks().url == "memory://other"
        for wrong in WRONG:
            with override_settings(HOLDFAST=wrong):
                try:
                    locks()
                except holdfast.ConfigError as error:
                    self.stdout.write(f"refused {error}")
        with override_settings(HOLDFAST_URL="memory://"):
            try:
                locks()
            except holdfast.ConfigError as error:
                self.stdout.write(f"refused {error}")
        with override_settings(HOLDFAST=None):
            try:
                call_command(Count(), 9, lock_wait=5.0)
            except CommandError as error:
                self.stdout.write(f"refused {error}")
        call_command(Count(), 9, lock_wait=5.0)

    def pay(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO paid VALUES (42)")

    def paid(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM paid")
            number: int = cursor.fetchone()[0]
        return number


class Fork(BaseCommand):  # type: ignore[misc]
    """Forks while a thread is inside `locks()`."""

    def handle(self, **options: Any) -> None:
        locks()
        with contrib._mutex:  # as another thread may have it
            child = multiprocessing.get_context("fork").Process(target=self.use)
            child.start()
        child.join(60.0)
        if child.is_alive():
            child.kill()
            child.join()
        self.stdout.write(f"the child ended with {child.exitcode}")

    def use(self) -> None:
        with locks().lock("x") as lease:
            lease.ensure()


COMMANDS: dict[str, Any] = {
    "count": Count,
    "stay": Stay,
    "lose": Lose,
    "check": Check,
    "fork": Fork,
}
COMMANDS[sys.argv[1]]().run_from_argv(["manage.py", *sys.argv[1:]])
