"""A throw-away PgBouncer, which lends the connections of a PostgreSQL for one transaction at a time."""

from __future__ import annotations

from contextlib import suppress

from holdfast.chaos.servers.daemon import Daemon, find
from holdfast.chaos.servers.ports import free_port


class PgBouncer:
    """A pooler before the server at `port`, as most people run it."""

    def __init__(self, port: int, *, mode: str = "transaction", size: int = 4) -> None:
        self._daemon = Daemon("pgbouncer", "postgres")
        self.port = free_port()
        settings = self._daemon.folder / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"* = host=127.0.0.1 port={port} user=postgres\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\n"
            f"pool_mode = {mode}\ndefault_pool_size = {size}\nmax_client_conn = 200\n"
            "auth_type = any\nunix_socket_dir =\n"
        )
        command = [find("pgbouncer", "pgbouncer"), str(settings)]
        self._daemon.run(command, self._answers)

    def url(self, database: str) -> str:
        """The URL of a database behind it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def _answers(self) -> bool:
        import psycopg

        with suppress(psycopg.OperationalError):
            psycopg.connect(self.url("postgres"), prepare_threshold=None).close()
            return True
        return False

    def stop(self) -> None:
        self._daemon.stop()
