"""A throw-away ZooKeeper ensemble: three small JVMs, with a few words to ask and upset them."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers.ports import free_port

READY_LIMIT = 40.0
TICK = 0.5
"""The ensemble's tickTime, in seconds."""
JAR = Path("/usr/share/java/zookeeper.jar")
CLASSES = f"{JAR}:/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar"
TLS = """\
secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={key_and_cert}
ssl.trustStore.location={trusted}
"""
OPTIONS = f"""\
tickTime={int(TICK * 1000)}
initLimit=10
syncLimit=4
maxSessionTimeout=120000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""


class Node:
    """One server process of an ensemble."""

    def __init__(self, number: int, folder: Path, host: str, inside: Sequence[str]) -> None:
        self.number = number
        self.host = host
        self._inside = inside
        self.folder = folder / f"node{number}"
        (self.folder / "data").mkdir(parents=True)
        (self.folder / "data" / "myid").write_text(f"{number}\n")
        self.port = free_port()
        self.peer = f"{host}:{free_port()}:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def configure(self, nodes: list[Node], options: str) -> None:
        text = OPTIONS + options + f"dataDir={self.folder}/data\nclientPort={self.port}\n"
        text += f"clientPortAddress={self.host}\n"
        text += "".join(f"server.{node.number}={node.peer}\n" for node in nodes)
        (self.folder / "zoo.cfg").write_text(text)

    def start(self) -> None:
        java = shutil.which("java")
        assert java is not None, "the tests need ZooKeeper: apt-get install zookeeper"
        assert JAR.exists(), "the tests need ZooKeeper: apt-get install zookeeper"
        # Killed with the run, too, if that is killed: `setpriv` is part of util-linux.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        # Compiled quickly rather than well: these servers live for a minute.
        small = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        quick = ["-Dznode.container.checkIntervalMs=500", "-Dzookeeper.forceSync=no"]
        quick += [
            "-Dzookeeper.preAllocSize=1024",
            "-XX:+PerfDisableSharedMem",
        ]  # the disk may be busy
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [*self._inside, *guard, java, *small, *quick, quiet, "-cp", CLASSES, main]
        command.append(str(self.folder / "zoo.cfg"))
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self.folder,
            )

    def ask(self, word: str) -> str:
        """The answer to one of the server's four-letter words; empty if there is none."""
        try:
            with socket.create_connection((self.host, self.port), 2.0) as sock:
                sock.sendall(word.encode())
                text = b""
                while data := sock.recv(65536):
                    text += data
                return text.decode()
        except OSError:
            return ""

    def serves(self) -> bool:
        return "Mode: " in self.ask("srvr")

    def leads(self) -> bool:
        return "Mode: leader" in self.ask("srvr")

    def check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"a ZooKeeper node ended by itself:\n{self.log()[-2000:]}")

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @contextmanager
    def slow_disk(self, seconds: float) -> Iterator[None]:
        """Each write to its log of transactions takes so long; nothing else does."""
        assert self._process is not None
        logs = sorted((self.folder / "data" / "version-2").glob("log.*"))
        command = ["strace", "-f", "-qq", "-o", str(self.folder / "writes"), "-e", "trace=write"]
        command += ["-P", str(logs[-1]), "-p", str(self._process.pid)]
        command += ["-e", f"inject=write:delay_enter={int(seconds * 1e6)}"]
        strace = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            yield
            assert strace.poll() is None, "strace ended by itself"
        finally:
            strace.terminate()
            strace.wait()

    def slow_writes(self) -> int:
        """How many were slow."""
        written = self.folder / "writes"
        return written.read_text().count("(DELAYED)") if written.exists() else 0

    def kill(self) -> None:
        """As a crash would; the folder stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _memory() -> str | None:
    """Where a busy disk does not hold an ensemble up, if there is room."""
    place = Path("/dev/shm")
    return str(place) if place.is_dir() and shutil.disk_usage(place).free > 2**28 else None


@contextmanager
def raw_client(hosts: str, client_id: Any = None) -> Iterator[Any]:
    """Plain kazoo. Leaving closes its session; given another's `client_id`, that one's."""
    from kazoo.client import KazooClient

    class Client(KazooClient):  # type: ignore[misc]
        """Reads what is true now, not what its node has heard of so far."""

        def get_children(self, path: str) -> Any:
            self.sync(path)
            return super().get_children(path)

        def exists(self, path: str) -> Any:
            self.sync(path)
            return super().exists(path)

    client = Client(hosts, timeout=10.0, client_id=client_id)
    client.start(timeout=10.0)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class ZooKeeperEnsemble:
    """Nothing of it is left once `stop` has returned."""

    def __init__(
        self,
        places: Sequence[tuple[str, Sequence[str]]] = (("127.0.0.1", ()),) * 3,
        options: str = "",
    ) -> None:
        """`places` has, for each node, its address and the command to run it inside of."""
        self.folder = Path(tempfile.mkdtemp(prefix="hf-zookeeper-", dir=_memory()))
        self.nodes = [
            Node(number, self.folder, host, inside)
            for number, (host, inside) in enumerate(places, 1)
        ]
        for node in self.nodes:
            node.configure(self.nodes, options)
        for node in self.nodes:
            node.start()
        self.ready()

    @property
    def hosts(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def url(self) -> str:
        return f"zookeeper://{self.hosts}"

    def ready(self) -> None:
        """Wait until every node serves."""
        self.until(lambda: all(node.serves() for node in self.nodes))

    def leader(self) -> Node:
        found: list[Node] = []

        def leads() -> bool:
            found[:] = [node for node in self.nodes if node.leads()]
            return len(found) == 1

        self.until(leads)
        return found[0]

    def followers(self) -> list[Node]:
        leader = self.leader()
        return [node for node in self.nodes if node is not leader]

    def until(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + READY_LIMIT
        while not condition():
            for node in self.nodes:
                node.check()
            logs = "\n".join(node.log()[-1000:] for node in self.nodes)
            assert time.monotonic() < limit, f"ZooKeeper is not ready:\n{logs}"
            time.sleep(0.02)

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def lock_path(url: str, name: str) -> str:
    """Returns the znode of the lock `name` below the chroot of `url`."""
    return f"/{url.rpartition('/')[2]}/holdfast/locks/{name}"
