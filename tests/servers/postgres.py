"""A throw-away PostgreSQL."""

from __future__ import annotations

import getpass
import glob
import os
import signal
import socket
from contextlib import suppress
from typing import Any

from .daemon import Daemon, find
from .ports import free_port


class PostgresServer:
    def __init__(
        self,
        *settings: str,
        environment: dict[str, str] | None = None,
        primary: PostgresServer | None = None,
    ) -> None:
        """Starts a server; a standby, if it has a `primary`."""
        self._environment = environment
        folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
        self._program = find("postgres", "postgresql", *folders)
        self._daemon = Daemon("postgres", "postgres")
        self.port = free_port()
        self._settings = settings
        self._databases = 0
        self._emptied = ""
        self._data = str(self._daemon.folder / "data")
        if primary is None:
            initdb = find("initdb", "postgresql", *folders)
            command = [initdb, "-D", self._data, "-A", "trust", "-N", "-U", "postgres"]
            self._daemon.prepare([*command, "-E", "UTF8", "--locale=C.UTF-8"])
        else:
            copy = find("pg_basebackup", "postgresql", *folders)
            command = [copy, "-D", self._data, "-R", "-X", "stream", "-c", "fast", "--no-sync"]
            self._daemon.prepare([*command, "-d", primary.url])
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        command = [self._program, "-D", self._data, "-p", str(self.port), "-h", "127.0.0.1"]
        command += ["-k", str(self._daemon.folder), "-c", "shared_buffers=16MB"]
        command += ["-c", "max_connections=200"]
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
                connection.execute("TRUNCATE holdfast_lock, holdfast_entry, holdfast_audit")
                connection.execute("UPDATE holdfast_store SET floor = 0, cleaned = ''")
        return self._emptied

    def kill(self) -> None:
        """As a crash of the machine would: its processes for connections are not of its group."""
        serving = self._daemon.children()
        self._daemon.kill()
        for process in serving:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        self._daemon.stop()
