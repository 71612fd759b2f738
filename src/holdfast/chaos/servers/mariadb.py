"""A throw-away MariaDB, or the MySQL that $HOLDFAST_TEST_MYSQL_SERVER names."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from contextlib import suppress
from typing import Any

from .daemon import Daemon, find
from .errors import ServerError
from .ports import free_port
from .sites import HERE, Site


class MariaServer:
    def __init__(
        self,
        *settings: str,
        environment: dict[str, str] | None = None,
        site: Site = HERE,
        on_disk: bool = False,
    ) -> None:
        """One that is not `on_disk` maps its log, and waits for no disk: there no disk can be slow."""
        self._environment = environment
        other = os.environ.get("HOLDFAST_TEST_MYSQL_SERVER", "")
        self._program = other or find("mariadbd", "mariadb-server")
        self._daemon = Daemon("mariadb", "mysql", site, on_disk=on_disk)
        self.port = free_port()
        self._settings = settings
        self._databases = 0
        self._wiped = False
        self._data = str(self._daemon.folder / "data")
        # One that starts removes what it takes for leftovers in a folder that it shares with others.
        self._temporary = f"--tmpdir={self._daemon.folder}"
        self._other = other
        if other:
            self._settings = ("--mysqlx=OFF", "--secure-file-priv=", *settings)
        self._make_data()
        self.start()
        self._make_database()

    def _make_data(self) -> None:
        if self._other:
            command = [self._other, "--no-defaults", f"--datadir={self._data}"]
            self._daemon.prepare([*command, "--secure-file-priv=", "--initialize-insecure"])
        else:
            install = find("mariadb-install-db", "mariadb-server")
            command = [install, "--no-defaults", f"--datadir={self._data}", "--skip-test-db"]
            command += [self._temporary]
            self._daemon.prepare([*command, "--auth-root-authentication-method=normal"])

    def _make_database(self) -> None:
        with self.connect(database=None) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS app")
            # A URL that is shown has no user: the system's user is taken then.
            for name in {getpass.getuser(), "root"}:
                user = f"'{name}'@'%'"
                cursor.execute(f"CREATE USER IF NOT EXISTS {user}")
                cursor.execute(f"GRANT ALL ON *.* TO {user} WITH GRANT OPTION")

    def wipe(self) -> None:
        """Have it begin with no data, while it does not run; the next start makes its database."""
        shutil.rmtree(self._data)
        self._make_data()
        self._wiped = True

    def wait_ready(self) -> None:
        self._daemon.wait_ready(self._answers)

    @property
    def socket(self) -> str:
        return f"{self._daemon.folder}/s.sock"

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/app"

    @property
    def address(self) -> tuple[str, int]:
        """The address and the port at which workers reach it."""
        return self._daemon.site.host, self.port

    def start(self) -> None:
        command = [self._program, "--no-defaults", f"--datadir={self._data}"]
        command += [f"--port={self.port}", f"--socket={self.socket}"]
        site = self._daemon.site
        site.open(self.port)
        command += ["--skip-name-resolve"] if site.far else []
        command += [f"--bind-address={site.host}", "--innodb-buffer-pool-size=16M", self._temporary]
        self._daemon.run([*command, *self._settings], self._answers, self._environment)
        if self._wiped:
            self._wiped = False
            self._make_database()

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
        if self._daemon.site.far:  # to whom is elsewhere it listens once it has such a user
            settings["unix_socket"] = self.socket
        return pymysql.connect(**{**settings, **options})

    def follow(self, port: int) -> None:
        """Replicates what the server at `port` does; returns once all that it has done is here."""
        with self.connect(port=port) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            first = cursor.fetchone()[0]
            cursor.execute("SHOW MASTER STATUS")
            last, position, *_ = cursor.fetchone()
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER='root', "
                "MASTER_LOG_FILE=%s, MASTER_LOG_POS=4, MASTER_CONNECT_RETRY=1",
                (port, first),
            )
            cursor.execute("START SLAVE")
            cursor.execute("SELECT MASTER_POS_WAIT(%s, %s, 60)", (last, position))
            (waited_for,) = cursor.fetchone()  # 0 where it was already here
            if waited_for is None or waited_for < 0:
                cursor.execute("SHOW SLAVE STATUS")
                raise ServerError(f"it does not follow: {cursor.fetchone()}")

    def promote(self) -> None:
        """Follows nobody any more."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("STOP SLAVE")
            cursor.execute("RESET SLAVE ALL")

    def new_database(self) -> str:
        """Makes an empty database, and returns its URL."""
        self._databases += 1
        name = f"test{self._databases}"
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return f"mariadb://127.0.0.1:{self.port}/{name}"

    def client(self, script: str, database: str) -> None:
        """Has the command-line client run a script."""
        command = [find("mariadb", "mariadb-client"), "--no-defaults", "--host=127.0.0.1"]
        command += [f"--port={self.port}", "--user=root", database]
        subprocess.run(command, input=script.encode(), check=True, timeout=60)

    @property
    def pid(self) -> int:
        return self._daemon.pid

    def kill(self) -> None:
        self._daemon.kill()

    def stop(self) -> None:
        self._daemon.stop()
