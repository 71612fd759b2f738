"""A throw-away S3: SeaweedFS, a real store that speaks it and compares and writes in one step.

All of its parts (master, volumes, filer, gateway) run in one process, on ports of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.chaos.servers.daemon import Daemon
from holdfast.chaos.servers.ports import free_ports

from . import web

BUCKET = "tests"
"""One for all, since each takes volumes of its own. What a test calls its bucket is a prefix in it."""

PARTS = ("master", "volume", "filer", "s3")
PORTS = [f"{part}.{port}" for part in PARTS for port in ("port", "port.grpc")]


class S3Server:
    def __init__(self) -> None:
        program = Path(sys.prefix) / "bin/weed"
        assert program.exists(), "the tests need SeaweedFS: run tools/setup dev"
        self._daemon = Daemon("s3", "root")
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.url = f"http://127.0.0.1:{self._ports['s3.port']}"
        folder = self._daemon.folder
        self._command = [str(program), "server", f"-dir={folder}", "-filer", "-s3"]
        self._command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"]
        self._command += ["-master.volumeSizeLimitMB=32", "-volume.max=20"]
        # The master elects itself, and had better be done when the volumes ask for it.
        self._command += ["-master.electionTimeout=200ms", "-master.heartbeatInterval=50ms"]
        self._command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
        self._command += [f"-{part}.localSocket={folder}/{part}.sock" for part in ("filer", "s3")]
        self._command += [f"-{name}={port}" for name, port in self._ports.items()]
        self.start()

    def start(self) -> None:
        """Start it, or start it again with the same data."""
        self._daemon.run(self._command, self._answers)

    def _answers(self) -> bool:
        import httpx

        # The gateway is up before there is a volume to write to, and then waits five seconds for one.
        master = f"http://127.0.0.1:{self._ports['master.port']}/dir/status"
        with suppress(httpx.TransportError, ValueError, KeyError):  # not yet
            if not httpx.get(master, trust_env=False).json()["Topology"]["Free"]:
                return False
            made = httpx.put(f"{self.url}/{BUCKET}", trust_env=False)
            if made.status_code not in (200, 409):  # it is there already
                return False
            written = httpx.put(f"{self.url}/{BUCKET}/ready", content=b"1", trust_env=False)
            return written.is_success
        return False

    def bucket(self, name: str, url: str | None = None) -> Any:
        """A place of its own, as a store of obstore's."""
        from obstore.store import S3Store

        return S3Store(
            BUCKET,
            prefix=name,
            endpoint=url or self.url,
            access_key_id="test",
            secret_access_key="test",
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

    @contextmanager
    def careless(self, ignored: str) -> Iterator[str]:
        """The URL of one that ignores such headers, as there are servers that do."""
        import httpx

        with httpx.Client(base_url=self.url, trust_env=False, timeout=60.0) as client:

            def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
                body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                headers = {
                    name[5:].replace("_", "-"): value
                    for name, value in environ.items()
                    if name.startswith("HTTP_") and not name.startswith(f"HTTP_{ignored}")
                }
                method, path = environ["REQUEST_METHOD"], environ["REQUEST_URI"]
                answer = client.request(method, path, content=body, headers=headers)
                start_response(f"{answer.status_code} so", list(answer.headers.items()))
                return [answer.content]

            with web.wsgi(app) as url:
                yield url

    def kill(self) -> None:
        self._daemon.kill()
        for part in PARTS:  # it has these there, whatever it is told
            port = self._ports[f"{part}.port.grpc"]
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock").unlink(missing_ok=True)

    def stop(self) -> None:
        self.kill()
        self._daemon.stop()
