"""A throw-away ZooKeeper ensemble: three small JVMs, with a few words to ask and upset them."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import ServerError
from .ports import free_port
from .processes import end_group, freeze, make_folder, remove_folder, start, thaw
from .proxy import Place, connect_to
from .tracing import Trace

READY_LIMIT = 60.0
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
initLimit=40
syncLimit=10
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
        self.environment: dict[str, str] = {}
        self.door: Place | None = None
        """Where it can be reached, if not at its address."""
        self.syncs = False
        """Whether it waits for its disk."""
        self._process: subprocess.Popen[bytes] | None = None
        self._trace: Trace | None = None

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
        if java is None or not JAR.exists():
            raise ServerError("ZooKeeper is not installed: apt-get install zookeeper")
        # Compiled quickly rather than well: these servers live for a minute.
        small = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        force = "yes" if self.syncs else "no"
        quick = ["-Dznode.container.checkIntervalMs=500", f"-Dzookeeper.forceSync={force}"]
        quick += [
            "-Dzookeeper.preAllocSize=1024",
            "-XX:+PerfDisableSharedMem",
        ]  # the disk may be busy
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [*self._inside, java, *small, *quick, quiet, "-cp", CLASSES, main]
        command.append(str(self.folder / "zoo.cfg"))
        with (self.folder / "log").open("ab") as log:
            self._process = start(
                command, environment=self.environment, output=log, folder=self.folder
            )

    def ask(self, word: str) -> str:
        """The answer to one of the server's four-letter words; empty if there is none."""
        try:
            with connect_to(self.door or (self.host, self.port), 2.0) as sock:
                sock.sendall(word.encode())
                text = b""
                while data := sock.recv(65536):
                    text += data
                return text.decode()
        except OSError:
            return ""

    def serves(self) -> bool:
        return self.running and "Mode: " in self.ask("srvr")

    def leads(self) -> bool:
        return "Mode: leader" in self.ask("srvr")

    def last_write(self) -> str:
        """Returns the number of the last write that it knows of; empty if it does not answer."""
        said = (line for line in self.ask("srvr").splitlines() if line.startswith("Zxid: "))
        return next(said, "")

    def check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise ServerError(f"a ZooKeeper node ended by itself:\n{self.log()[-2000:]}")

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError(f"node {self.number} does not run")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started, and has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        freeze(self.pid)

    def resume(self) -> None:
        thaw(self.pid)

    @contextmanager
    def slow_disk(self, seconds: float) -> Iterator[None]:
        """Each write to its log of transactions takes so long; nothing else does."""
        logs = sorted((self.folder / "data" / "version-2").glob("log.*"))
        self._trace = Trace([self.pid], f"write:delay_enter={int(seconds * 1e6)}", str(logs[-1]))
        try:
            yield
        finally:
            self._trace.stop()

    def slow_writes(self) -> int:
        """How many were slow."""
        return 0 if self._trace is None else self._trace.count()

    def wipe(self) -> None:
        """Remove its data, while it does not run; it still knows its number."""
        shutil.rmtree(self.folder / "data" / "version-2", ignore_errors=True)

    def kill(self) -> None:
        """As a crash would; the folder stays."""
        if self._process is not None:
            end_group(self._process)
            self._process = None


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
        environments: Sequence[dict[str, str]] = (),
        syncs: bool = False,
        door: Callable[[Node], Place] | None = None,
    ) -> None:
        """`places` has, for each node, its address and the command to run it inside of.

        `environments` has what each node has on top. Their disks are waited for if `syncs` says so.
        `door` returns where we can reach a node that is in another network.
        """
        self.folder = make_folder("zookeeper")
        self.nodes = [
            Node(number, self.folder, host, inside)
            for number, (host, inside) in enumerate(places, 1)
        ]
        for number, node in enumerate(self.nodes):
            node.configure(self.nodes, options)
            node.environment = environments[number] if environments else {}
            node.syncs = syncs
            node.door = door(node) if door is not None else None
        try:
            for node in self.nodes:
                node.start()
            self.ready()
        except BaseException:
            self.stop()
            raise

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
            if time.monotonic() > limit:
                raise ServerError(f"ZooKeeper is not ready:\n{logs}")
            time.sleep(0.02)

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()
        remove_folder(self.folder)


def lock_path(url: str, name: str) -> str:
    """Returns the znode of the lock `name` below the chroot of `url`."""
    return f"/{url.rpartition('/')[2]}/holdfast/locks/{name}"
