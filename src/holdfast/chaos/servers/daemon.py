"""A throw-away server process that will not run as root, and whatever happens ends with the run."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from .errors import ServerError
from .processes import children_of, end_group, forget, make_folder, remove_folder, start
from .sites import HERE, Site

READY_LIMIT = 60.0


class Daemon:
    """One process in a folder of its own. `user` is who runs it when we are root."""

    def __init__(self, name: str, user: str, site: Site = HERE, *, on_disk: bool = False) -> None:
        self.name = name
        self.site = site
        # Not below the folder of a test, which other users may not enter.
        self.folder = make_folder(name, on_disk=on_disk)
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            try:
                entry = pwd.getpwnam(user)
            except KeyError:
                raise ServerError(
                    f"{name} does not run as root, and there is no user {user!r}: run this as another "
                    "user, or install the package of the server"
                ) from None
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
            timeout=300,
            check=False,
            **self._as,
        )
        if done.returncode != 0:
            raise ServerError(f"{command[0]} failed: {done.stdout}{done.stderr}")

    def run(
        self,
        command: Sequence[str],
        ready: Callable[[], bool],
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start it, and wait until it is ready."""
        user = self._as
        if self.site.inside:
            command, user = [*self._enter(), *command], {}
        with (self.folder / "log").open("ab") as log:
            self._process = start(
                command, environment=environment, output=log, folder=self.folder, **user
            )
        self.wait_ready(ready)

    def _enter(self) -> list[str]:
        """Returns the command that enters its site, and there becomes the user who runs it."""
        *words, end = self.site.inside
        if self._as:
            words += ["-S", str(self._as["user"]), "-G", str(self._as["group"])]
        return [*words, end]

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        """Wait until it is ready."""
        limit = time.monotonic() + READY_LIMIT
        while not ready():
            if self._process is None or self._process.poll() is not None:
                raise ServerError(f"{self.name} did not start:\n{self.log}")
            if time.monotonic() > limit:
                raise ServerError(f"{self.name} does not answer:\n{self.log}")
            time.sleep(0.02)

    def children(self) -> list[int]:
        """The processes that it started."""
        return children_of(self.pid)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError(f"{self.name} does not run")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started, and has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """As a crash would, with all of its processes; the folder stays."""
        if self._process is not None:
            end_group(self._process)
            self._process = None

    def end(self) -> None:
        """In order, as a service manager would; the folder stays."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(READY_LIMIT)
            forget(self._process)
            self._process = None

    def stop(self) -> None:
        self.kill()
        remove_folder(self.folder)


def find(program: str, package: str, *folders: str) -> str:
    """Where a program is; Debian keeps some of them off the path."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *folders])
    found = shutil.which(program, path=path)
    if found is None:
        raise ServerError(f"{program} is not installed: apt-get install {package}")
    return found
