"""A throw-away server process that will not run as root, and whatever happens ends with the run."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

READY_LIMIT = 60.0


class Daemon:
    """One process in a folder of its own. `user` is who runs it when we are root."""

    def __init__(self, name: str, user: str) -> None:
        self.name = name
        # Not below the folder of a test, which other users may not enter.
        self.folder = Path(tempfile.mkdtemp(prefix=f"hf-{name}-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            entry = pwd.getpwnam(user)
            self._as = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def prepare(self, command: Sequence[str]) -> None:
        """Run a command to its end, such as one that makes the data folder."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **self._as,
        )
        assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"

    def run(
        self,
        command: Sequence[str],
        ready: Callable[[], bool],
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start it, and wait until it is ready."""
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
                **self._as,
            )
        limit = time.monotonic() + READY_LIMIT
        while not ready():
            assert self._process.poll() is None, f"{self.name} did not start:\n{self.log}"
            assert time.monotonic() < limit, f"{self.name} does not answer:\n{self.log}"
            time.sleep(0.02)

    def children(self) -> list[int]:
        """The processes that it started."""
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task")
        return [
            int(child)
            for task in tasks.iterdir()
            for child in (task / "children").read_text().split()
        ]

    def kill(self) -> None:
        """As a crash would, with all of its processes; the folder stays."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def end(self) -> None:
        """In order, as a service manager would; the folder stays."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(READY_LIMIT)
            self._process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def find(program: str, package: str, *folders: str) -> str:
    """Where a program is; Debian keeps some of them off the path."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *folders])
    found = shutil.which(program, path=path)
    assert found is not None, f"the tests need {program}: apt-get install {package}"
    return found
