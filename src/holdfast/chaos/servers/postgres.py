"""A throw-away PostgreSQL."""

from __future__ import annotations

import getpass
import glob
import os
import shutil
import signal
import socket
from contextlib import suppress
from typing import Any

from .daemon import Daemon, find
from .janitor_process import free_segment
from .ports import free_port
from .sites import HERE, Site


class PostgresServer:
    def __init__(
        self,
        *settings: str,
        environment: dict[str, str] | None = None,
        primary: int = 0,
        site: Site = HERE,
        on_disk: bool = False,
    ) -> None:
        """Starts a server; a standby, if it is given the port of a `primary`."""
        self._environment = environment
        folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
        self._program = find("postgres", "postgresql", *folders)
        self._daemon = Daemon("postgres", "postgres", site, on_disk=on_disk)
        self.port = free_port()
        self._settings = settings
        self._databases = 0
        self._emptied = ""
        self._data = str(self._daemon.folder / "data")
        if not primary:
            self._initdb = find("initdb", "postgresql", *folders)
            self._make_data()
        else:
            copy = find("pg_basebackup", "postgresql", *folders)
            command = [copy, "-D", self._data, "-R", "-X", "stream", "-c", "fast", "--no-sync"]
            self._daemon.prepare([*command, "-d", f"postgresql://postgres@127.0.0.1:{primary}"])
        self.start()

    def _make_data(self) -> None:
        command = [self._initdb, "-D", self._data, "-A", "trust", "-N", "-U", "postgres"]
        self._daemon.prepare([*command, "-E", "UTF8", "--locale=C.UTF-8"])
        if self._daemon.site.far:
            with open(f"{self._data}/pg_hba.conf", "a", encoding="utf-8") as file:
                file.write("host all all samenet trust\n")

    def wipe(self) -> None:
        """Have it begin with no data, while it does not run."""
        shutil.rmtree(self._data)
        self._make_data()

    def wait_ready(self) -> None:
        self._daemon.wait_ready(self._answers)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def address(self) -> tuple[str, int]:
        """The address and the port at which workers reach it."""
        return self._daemon.site.host, self.port

    def start(self) -> None:
        site = self._daemon.site
        site.open(self.port)
        command = [self._program, "-D", self._data, "-p", str(self.port), "-h", site.host]
        command += ["-k", str(self._daemon.folder), "-c", "shared_buffers=16MB"]
        # Killed, it would leave its shared memory behind: so that is a file, in its folder.
        command += ["-c", "max_connections=200", "-c", "dynamic_shared_memory_type=mmap"]
        for setting in self._settings:
            command += ["-c", setting]
        self._daemon.run(command, self._answers, self._environment)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            import psycopg

            with suppress(psycopg.OperationalError):
                self.connect().close()
                return True
        return False

    def connect(self, **options: Any) -> Any:
        """A connection of psycopg's."""
        import psycopg

        return psycopg.connect(self.url, **options)

    def promote(self) -> None:
        """Makes a standby a primary, which is done when this returns."""
        with self.connect(autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def new_database(self) -> str:
        """Makes an empty database, and returns its URL."""
        self._databases += 1
        name = f"test{self._databases}"
        with self.connect(autocommit=True) as connection:
            if (
                self._databases == 1
            ):  # a URL that is shown has no user: the system's user is taken then
                connection.execute(f'CREATE ROLE "{getpass.getuser()}" SUPERUSER LOGIN')
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://127.0.0.1:{self.port}/{name}"

    def emptied_database(self) -> str:
        """Empty the tables of one database, quicker than to make another; answers its URL."""
        if not self._emptied:
            self._emptied = self.new_database()
        with self.connect(dbname=self._emptied.rpartition("/")[2], autocommit=True) as connection:
            there = connection.execute("SELECT to_regclass('holdfast_store') IS NOT NULL")
            if there.fetchone()[0]:
                connection.execute(
                    "TRUNCATE holdfast_lock, holdfast_entry, holdfast_audit, holdfast_change, "
                    "holdfast_observer"
                )
                connection.execute("UPDATE holdfast_store SET floor = 0, cleaned = ''")
        return self._emptied

    def kill(self) -> None:
        """As a crash of the machine would: its processes for connections are not of its group."""
        serving = self._daemon.children() if self._daemon.running else []
        self._daemon.kill()
        free_segment(self._data)
        for process in serving:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    @property
    def pid(self) -> int:
        return self._daemon.pid

    def stop(self) -> None:
        self.kill()
        self._daemon.stop()
