"""A throw-away MariaDB."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .daemon import Daemon, find
from .ports import free_port


class MariaServer:
    def __init__(self, *settings: str) -> None:
        self._program = find("mariadbd", "mariadb-server")
        self._daemon = Daemon("mariadb", "mysql")
        self.port = free_port()
        self._settings = settings
        self._data = str(self._daemon.folder / "data")
        install = find("mariadb-install-db", "mariadb-server")
        command = [install, "--no-defaults", f"--datadir={self._data}", "--skip-test-db"]
        self._daemon.prepare([*command, "--auth-root-authentication-method=normal"])
        self.start()
        with self.connect(database=None) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS app")

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/app"

    def start(self) -> None:
        command = [self._program, "--no-defaults", f"--datadir={self._data}"]
        command += [f"--port={self.port}", f"--socket={self._daemon.folder}/s.sock"]
        command += ["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=16M"]
        self._daemon.run([*command, *self._settings], self._answers)

    def _answers(self) -> bool:
        import pymysql

        with suppress(pymysql.Error):
            self.connect(database=None).close()
            return True
        return False

    def connect(self, **options: Any) -> Any:
        """A connection of PyMySQL's."""
        import pymysql

        settings = {"host": "127.0.0.1", "port": self.port, "user": "root", "database": "app"}
        return pymysql.connect(**{**settings, **options})

    def kill(self) -> None:
        self._daemon.kill()

    def stop(self) -> None:
        self._daemon.stop()
