"""A network of rooms (network namespaces), between which packets are dropped, delayed and reordered.

It works without root where users may make namespaces of their own: all of it is in one user namespace,
with a process that passes frames from room to room, and drops or delays them as it is told.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from .errors import ServerError
from .processes import end_group, start

PROGRAM = Path(__file__).with_name("network_process.py")
NET = "10.213.0"
PROGRAMS = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2"}


class Network:
    """Rooms, each with an address; what runs `inside` of one reaches the others by theirs."""

    def __init__(self) -> None:
        for program, package in PROGRAMS.items():
            if shutil.which(program, path=_path()) is None:
                raise ServerError(f"{program} is not installed: apt-get install {package}")
        self._root = os.geteuid() == 0
        own = [] if self._root else ["-U", "--map-current-user", "--keep-caps"]
        self._process = start(
            ["unshare", *own, "-n", sys.executable, "-I", "-S", str(PROGRAM)],
            stdin=subprocess.PIPE,
            output=subprocess.PIPE,
            errors=subprocess.STDOUT,
            environment={"PATH": _path()},
        )
        self._mutex = threading.Lock()
        self._rooms: dict[str, dict[str, Any]] = {}
        try:
            self._ask({"do": "start"})
        except BaseException:
            self.stop()
            raise

    def room(self, name: str) -> str:
        """Makes a room, and returns its address."""
        number = len(self._rooms) + 1
        self._rooms[name] = self._ask({"do": "room", "number": number}) | {"number": number}
        return f"{NET}.{number}"

    def inside(self, name: str) -> list[str]:
        """Returns the command under which a program runs in this room."""
        own = [] if self._root else ["-U", "--preserve-credentials"]
        return ["nsenter", "-t", str(self._rooms[name]["pid"]), *own, "-n", "--"]

    def door(self, name: str, port: int, path: Path) -> None:
        """Lets those who connect to the unix socket `path` through to a port in this room."""
        address = f"{NET}.{self._rooms[name]['number']}"
        self._ask({"do": "door", "address": address, "port": port, "path": str(path)})

    def disturb(
        self,
        sender: str,
        receiver: str,
        *,
        loss: float = 0.0,
        delay: float = 0.0,
        reorder: float = 0.0,
    ) -> None:
        """Has frames from one room to another be lost, come later, or overtake each other.

        `loss` and `reorder` are shares of them, from 0 to 1; a loss of 1 is a cut, in that direction.
        """
        pair = [self._rooms[name]["number"] for name in (sender, receiver)]
        rule = {"loss": loss, "delay": delay, "reorder": reorder}
        self._ask({"do": "disturb", "pair": pair, **rule})

    def cut(self, name: str, *others: str) -> None:
        """Cuts a room off from others, both ways."""
        for other in others:
            self.disturb(name, other, loss=1.0)
            self.disturb(other, name, loss=1.0)

    def mend(self) -> None:
        """Has everything arrive again."""
        self._ask({"do": "mend"})

    def dropped(self) -> int:
        """Returns how many frames were dropped so far."""
        return int(self._ask({"do": "count"})["dropped"])

    def disturbed(self) -> int:
        """Returns how many frames were dropped or delayed so far."""
        found = self._ask({"do": "count"})
        return int(found["dropped"]) + int(found["delayed"])

    def stop(self) -> None:
        end_group(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._mutex:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with suppress(BrokenPipeError):  # it has ended, and said why
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
            if not line.startswith(b"{"):
                self._process.kill()
                said = (line + self._process.stdout.read()).decode(errors="replace").strip()
                last = said.splitlines()[-1] if said else "the process has ended"
                raise ServerError(f"there are no network namespaces for us here: {last}")
            reply: dict[str, Any] = json.loads(line)
            return reply


def _path() -> str:
    """Returns where programs are looked for; Debian keeps some of them off the path."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
