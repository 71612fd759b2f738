"""A throw-away lock service: a process of its own, with a store that somebody else runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .ports import free_port

READY_LIMIT = 60.0
_PROGRAM = """
import json, sys, uvicorn
from holdfast.service import Settings, create_app
given = json.loads(sys.argv[1])
port, more = given.pop("port"), given.pop("uvicorn")
given["namespaces"] = tuple(given["namespaces"])
app = create_app(Settings(**given))
uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False,
            timeout_graceful_shutdown=5, **more)
"""


class ServiceServer:
    """One service process. Nothing of it is left once `stop` has returned."""

    def __init__(
        self,
        url: str,
        namespaces: Sequence[str] = ("holdfast",),
        *,
        port: int = 0,
        options: dict[str, Any] | None = None,
        uvicorn: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="hf-service-"))
        self._uvicorn = uvicorn or {}
        self._settings = {
            "url": url,
            "namespaces": list(namespaces),
            "options": options or {},
            "port": self.port,
            "uvicorn": self._uvicorn,
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        scheme = "https" if "ssl_certfile" in self._uvicorn else "http"
        return f"{scheme}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, or start it again on the same port; wait until it listens."""
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command = [*guard, sys.executable, "-c", _PROGRAM, json.dumps(self._settings)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=dict(os.environ),
            )
        limit = time.monotonic() + READY_LIMIT
        while not self._listens():
            assert self._process.poll() is None, f"the service did not start:\n{self.log}"
            assert time.monotonic() < limit, f"the service does not answer:\n{self.log}"
            time.sleep(0.02)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    @property
    def running(self) -> bool:
        return self._process is not None

    def pause(self) -> None:
        """Nothing happens any more, as on a machine that stands still."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> None:
        """In order, as a service manager would."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(READY_LIMIT)
            self._process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
