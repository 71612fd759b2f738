"""A throw-away Galera cluster of MariaDB servers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from holdfast.chaos.servers.daemon import find
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.chaos.servers.ports import free_port

PROVIDER = "/usr/lib/galera/libgalera_smm.so"


class GaleraNode(MariaServer):
    """One server: the first of a cluster, or one that joins it and takes over its data."""

    def __init__(self, first: GaleraNode | None = None) -> None:
        assert Path(PROVIDER).exists(), "this test needs Galera: apt-get install galera-4"
        find("rsync", "rsync")
        self._base, self._increments, self._transfer = free_port(), free_port(), free_port()
        peers = f"127.0.0.1:{first._base}" if first is not None else ""
        super().__init__(
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-autoinc-lock-mode=2",
            "--binlog-format=ROW",
            "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}",
            f"--wsrep-cluster-address=gcomm://{peers}",
            "--wsrep-node-address=127.0.0.1",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{self._transfer}",
            "--wsrep-provider-options="
            f"gmcast.listen_addr=tcp://127.0.0.1:{self._base};base_port={self._base};"
            f"ist.recv_addr=127.0.0.1:{self._increments};gcache.size=8M",
        )

    def _answers(self) -> bool:
        import pymysql

        with suppress(pymysql.Error), self.connect(database=None) as connection:
            cursor = connection.cursor()
            cursor.execute("SHOW STATUS LIKE 'wsrep_ready'")
            return bool(cursor.fetchall() == (("wsrep_ready", "ON"),))
        return False
