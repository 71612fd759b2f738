"""A throw-away redis-server, with a few words to ask and upset it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .errors import ServerError
from .ports import free_port
from .processes import end_group, freeze, make_folder, remove_folder, start, thaw
from .sites import HERE, Site

READY_LIMIT = 60.0
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
        started: Callable[[int], None] = lambda pid: None,
        site: Site = HERE,
    ) -> None:
        """`started` is told the process id whenever the server was started, before it calls anybody."""
        wanted = program or os.environ.get("HOLDFAST_TEST_REDIS_SERVER", "redis-server")
        found = shutil.which(wanted)
        if found is None:
            raise ServerError(f"{wanted} is not installed: apt-get install redis-server")
        self._program = found
        self.folder = make_folder("redis")
        self.port = port or free_port()
        self.site = site
        self.options = options
        self.password = password
        self.wrapper: list[str] = []
        """The command to run the server under, when it is next started."""
        self._environment = environment
        self._started = started
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def address(self) -> tuple[str, int]:
        """The address and the port at which those at its site, or at others, reach it."""
        return self.site.host, self.port

    def start(self, wait: str = "PONG") -> None:
        """Start it, or start it again on the same port and folder; wait until it answers so."""
        command = [*self.site.inside, *self.wrapper, self._program, *self._arguments()]
        self.site.open(self.port)
        with (self.folder / "log").open("ab") as log:
            self._process = start(command, environment=self._environment, output=log)
        self._started(self._process.pid)
        self.wait_ready(wait)

    def wait_ready(self, wait: str = "PONG") -> None:
        """Wait until it answers, or refuses to with an error that starts so."""
        if self._process is None:
            raise ServerError("the server was not started")
        limit = time.monotonic() + READY_LIMIT
        while True:
            try:
                self("PING")
                return
            except (OSError, ServerError) as error:
                if str(error).startswith(wait):
                    return
                text = (self.folder / "log").read_text(errors="replace")
                if self._process.poll() is not None:
                    raise ServerError(f"redis-server did not start:\n{text[-2000:]}") from error
                if time.monotonic() > limit:
                    raise ServerError(f"redis-server does not answer:\n{text[-2000:]}") from error
                time.sleep(0.01)

    def _arguments(self) -> list[str]:
        where = ["--port", str(self.port), "--bind", self.site.host, "--dir", str(self.folder)]
        if self.site.far:
            where += ["--protected-mode", "no"]
        if self.password:
            where += ["--requirepass", self.password, "--masterauth", self.password]
        return [*where, "--save", "", "--appendonly", "no", *self.options]

    def __call__(self, *words: str | bytes | int) -> Any:
        """One command on a connection of its own; an error it answers is a ServerError."""
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
        if isinstance(reply, Exception):
            raise ServerError(str(reply))
        return reply

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError("the server does not run")
        return self._process.pid

    def pause(self) -> None:
        freeze(self.pid)

    def resume(self) -> None:
        thaw(self.pid)

    def kill(self) -> None:
        """As a crash would; the folder stays."""
        if self._process is not None:
            end_group(self._process)
            self._process = None

    def wipe(self) -> None:
        """Remove its data, while it does not run."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "log":
                path.unlink()

    def stop(self) -> None:
        self.kill()
        remove_folder(self.folder)


def certificate(folder: Path) -> tuple[str, str]:
    if not shutil.which("openssl"):
        raise ServerError("openssl is not installed: apt-get install openssl")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert), *subject]
    subprocess.run(made, check=True, capture_output=True)
    return str(cert), str(key)


class Tls(NamedTuple):
    """The certificate of a server, and whom it trusts: clients have to show a certificate, too."""

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
