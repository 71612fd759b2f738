"""A proxy that many share, and that knows which process calls: each caller's line can be cut by itself.

For stores whose clients must all name the same addresses (Redlock), or are told them by the store
(Sentinel). The caller is found by its socket in /proc, and named by the lane in its environment, or by
its process id where that is known.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .errors import ServerError
from .processes import began_at
from .proxy import Place, Proxy

LANE = "HOLDFAST_CHAOS_LANE"
"""The variable by which a process says which lane it is."""
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
"""Numbers of Linux."""
GROWN_UP = 5.0
"""Seconds after which a process has long become the program that it was started for."""


class Callers:
    """The lanes of processes on this machine."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], str] = {}
        self._others: set[tuple[int, str]] = set()
        """Processes that have no lane, and are too old to get one by becoming another program."""
        self._mutex = threading.Lock()
        self.name_process(os.getpid(), "conductor")

    def name_process(self, pid: int, lane: str) -> None:
        """Names a process, such as a server that overwrites its environment."""
        with self._mutex:
            self._known[pid, began_at(pid)] = lane

    def lane_of(self, address: tuple[str, int], peer: tuple[str, int]) -> str:
        """Returns the lane of the process with a TCP socket from `address` to `peer`; or nothing."""
        inode = _inode(address, peer)
        if inode is None:
            return ""
        wanted = f"socket:[{inode}]"
        with self._mutex:
            for (pid, _), lane in reversed(self._known.items()):
                if _has_open(pid, wanted):
                    return lane
            return next((lane for pid, lane in self._learn() if _has_open(pid, wanted)), "")

    def _learn(self) -> Iterator[tuple[int, str]]:
        """Looks through the processes that are new, and yields those that have a lane."""
        ticks, now = os.sysconf("SC_CLK_TCK"), time.clock_gettime(time.CLOCK_BOOTTIME)
        every = sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)
        for pid in every:  # the youngest first, mostly
            key = (pid, began_at(pid))
            if key in self._known or key in self._others or not key[1]:
                continue
            lane = _lane(pid)
            if lane:
                self._known[key] = lane
                yield pid, lane
            elif now - int(key[1]) / ticks > GROWN_UP:
                self._others.add(key)


def _lane(pid: int) -> str:
    with suppress(OSError):
        start = f"{LANE}=".encode()
        for text in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if text.startswith(start):
                return text[len(start) :].decode()
    return ""


def _has_open(pid: int, wanted: str) -> bool:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}") == wanted:
                    return True
    return False


def _inode(address: tuple[str, int], peer: tuple[str, int]) -> str | None:
    """Returns the number of the socket from `address` to `peer`, by which its process has it open."""
    try:
        return _asked_inode(address, peer)
    except OSError:  # a kernel without that; its list may be long
        return _listed_inode(address, peer)


def _asked_inode(address: tuple[str, int], peer: tuple[str, int]) -> str:
    """Asks the kernel for this one socket (sock_diag)."""
    ends = struct.pack("!HH", address[1], peer[1])
    hosts = b"".join(socket.inet_aton(host).ljust(16, b"\0") for host, _ in (address, peer))
    any_socket = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
    wanted = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    body = wanted + ends + hosts + any_socket
    request = struct.pack("=IHHII", 16 + len(body), SOCK_DIAG_BY_FAMILY, 1, 0, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(5.0)
        netlink.send(request)
        reply = netlink.recv(4096)
    (kind,) = struct.unpack_from("=H", reply, 4)
    if kind != SOCK_DIAG_BY_FAMILY:
        raise OSError("the kernel does not tell")
    (inode,) = struct.unpack_from("=I", reply, 16 + 4 + 48 + 16)
    return str(inode)


def _listed_inode(address: tuple[str, int], peer: tuple[str, int]) -> str | None:
    ends = [_hexadecimal(address), _hexadecimal(peer)]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == ends:
            return fields[9]
    return None


def _hexadecimal(address: tuple[str, int]) -> str:
    number = int.from_bytes(socket.inet_aton(address[0]), "little")
    return f"{number:08X}:{address[1]:04X}"


class Switchboard:
    """Stands before one server. `lines` has a proxy for each lane that has called, or may."""

    def __init__(self, target: Place, callers: Callers) -> None:
        if not Path("/proc/net/tcp").exists():
            raise ServerError("this needs Linux: callers are found in /proc")
        self._target = target
        self._callers = callers
        self._lines: dict[str, Proxy] = {}
        self._mutex = threading.Lock()
        self._closed = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def line(self, lane: str) -> Proxy:
        """Returns the proxy through which the calls of this lane go."""
        with self._mutex:
            if lane not in self._lines:
                self._lines[lane] = Proxy(self._target, None)
            return self._lines[lane]

    @property
    def lines(self) -> list[Proxy]:
        with self._mutex:
            return list(self._lines.values())

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(20.0)
        with self._mutex:
            self._closed = True
        for line in self.lines:
            line.close()

    def _accept(self) -> None:
        while True:
            try:
                client, address = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, address), daemon=True).start()

    def _serve(self, client: socket.socket, address: tuple[str, int]) -> None:
        try:
            lane = self._callers.lane_of(address, client.getsockname())
        except OSError:
            client.close()
            return
        if self._closed:
            client.close()
        else:
            self.line(lane).serve(client)
