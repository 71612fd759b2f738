"""A ZooKeeper ensemble of three servers for a figure, ended with it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

JAR = Path("/usr/share/java/zookeeper.jar")
LIMIT = 60.0


@contextmanager
def ensemble(folder: Path) -> Iterator[str]:
    """Starts an ensemble and yields its hosts, as `h1:p1,h2:p2,h3:p3`."""
    java = shutil.which("java")
    if java is None or not JAR.exists():
        raise RuntimeError("these figures need ZooKeeper: apt-get install zookeeper")
    ports = _free_ports(9)
    peers = "".join(
        f"server.{one}=127.0.0.1:{ports[3 * one - 2]}:{ports[3 * one - 1]}\n" for one in (1, 2, 3)
    )
    clients = [ports[3 * one - 3] for one in (1, 2, 3)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for one, port in enumerate(clients, 1):
            home = folder / f"zookeeper{one}"
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(f"{one}\n", encoding="ascii")
            (home / "zoo.cfg").write_text(
                "tickTime=500\ninitLimit=10\nsyncLimit=4\nmaxSessionTimeout=120000\n"
                "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n"
                f"dataDir={home}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n{peers}",
                encoding="ascii",
            )
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            options = ["-Xmx256m", "-XX:+UseSerialGC", "-cp", str(JAR)]
            processes.append(
                subprocess.Popen(
                    [java, *options, main, str(home / "zoo.cfg")],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd=home,
                )
            )
        limit = time.monotonic() + LIMIT
        while not all(_serves(port) for port in clients):
            if time.monotonic() > limit or any(one.poll() is not None for one in processes):
                raise RuntimeError("ZooKeeper did not start")
            time.sleep(0.05)
        yield ",".join(f"127.0.0.1:{port}" for port in clients)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _serves(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 2.0) as sock:
        sock.sendall(b"srvr")
        return b"Mode: " in sock.recv(65536)
    return False


def _free_ports(number: int) -> list[int]:
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
