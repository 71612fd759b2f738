"""A throw-away redis-server, with a few words to ask and upset it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from .ports import free_port

READY_LIMIT = 20.0
OTHERS = sorted((Path(sys.prefix) / "servers").glob("[!.]*"))
"""Programs of other versions and makes, from tools/redis-servers."""

_GROUPS = ("string", "list", "hash", "sortedset", "keyspace", "scripting", "pubsub", "connection")
NEEDED = (*[f"+@{group}" for group in _GROUPS], "+time")
"""The rights that a user of ours needs, in the words of `ACL SETUSER`."""


class RedisServer:
    """One server process. Nothing of it is left once `stop` has returned."""

    def __init__(
        self,
        *options: str,
        port: int = 0,
        password: str = "",
        environment: dict[str, str] | None = None,
        program: str = "",
    ) -> None:
        wanted = program or os.environ.get("HOLDFAST_TEST_REDIS_SERVER", "redis-server")
        found = shutil.which(wanted)
        assert found is not None, "the tests need redis-server: apt-get install redis-server"
        self._program = found
        self.folder = Path(tempfile.mkdtemp(prefix="hf-redis-"))
        self.port = port or free_port()
        self.options = options
        self.password = password
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, wait: str = "PONG") -> None:
        """Start it, or start it again on the same port and folder; wait until it answers so."""
        # Killed with the run, too, if that is killed: `setpriv` is part of util-linux.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command = [*guard, self._program, *self._arguments()]
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=self._environment,
            )
        limit = time.monotonic() + READY_LIMIT
        while True:
            try:
                self("PING")
                return
            except (OSError, AssertionError) as error:
                if str(error).startswith(wait):
                    return
                text = (self.folder / "log").read_text(errors="replace")
                assert self._process.poll() is None, f"redis-server did not start:\n{text[-2000:]}"
                assert time.monotonic() < limit, f"redis-server does not answer:\n{text[-2000:]}"
                time.sleep(0.01)

    def _arguments(self) -> list[str]:
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        if self.password:
            where += ["--requirepass", self.password, "--masterauth", self.password]
        return [*where, "--save", "", "--appendonly", "no", *self.options]

    def __call__(self, *words: str | bytes | int) -> Any:
        """One command on a connection of its own; an error it answers is an AssertionError."""
        from hiredis import Reader

        parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        packed = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)
        reader = Reader(notEnoughData=...)
        with socket.create_connection(("127.0.0.1", self.port), 5.0) as sock:
            sock.sendall(
                b"AUTH %b\r\n" % self.password.encode() + packed if self.password else packed
            )
            reply: Any = None
            for _ in range(2 if self.password else 1):
                while (reply := reader.gets()) is ...:
                    data = sock.recv(65536)
                    if not data:
                        raise ConnectionResetError("redis-server hung up")
                    reader.feed(data)
        assert not isinstance(reply, Exception), reply
        return reply

    @property
    def running(self) -> bool:
        return self._process is not None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As a crash would; the folder stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def certificate(folder: Path) -> tuple[str, str]:
    assert shutil.which("openssl"), "this test needs openssl: apt-get install openssl"
    key, cert = folder / "key.pem", folder / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert), *subject]
    subprocess.run(made, check=True, capture_output=True)
    return str(cert), str(key)


class Tls(NamedTuple):
    """What a server shows, and whom it trusts: also those who connect to it have to show one."""

    cert: str
    key: str
    trusted: str

    def settings(self, port: int) -> list[tuple[str, str]]:
        return [
            ("tls-port", str(port)),
            ("tls-cert-file", self.cert),
            ("tls-key-file", self.key),
            ("tls-ca-cert-file", self.trusted),
            ("tls-auth-clients", "yes"),
            ("tls-replication", "yes"),
        ]
