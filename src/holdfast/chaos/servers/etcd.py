"""Throw-away etcd clusters of one or three members, with a few words to ask and upset them."""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache

from ...stores.etcd.address import Address
from ...stores.etcd.wire.threads import Wire
from .errors import ServerError
from .peers import PeerLink
from .ports import free_ports
from .processes import end_group, make_folder, remove_folder, start
from .sites import HERE, Site

READY_LIMIT = 60.0


def environment() -> dict[str, str]:
    """Returns what the environment of a server needs: etcd wants to be asked twice on some machines."""
    machine = {"aarch64": "arm64", "armv7l": "arm"}.get(platform.machine())
    return {"ETCD_UNSUPPORTED_ARCH": machine} if machine else {}


class Member:
    """One server process. It keeps its ports and its folder when it is killed and started again."""

    def __init__(
        self,
        name: str,
        options: Sequence[str] = (),
        scheme: str = "http",
        site: Site = HERE,
    ) -> None:
        program = shutil.which("etcd")
        if program is None:
            raise ServerError("etcd is not installed: apt-get install etcd-server")
        self._program = program
        self.name = name
        self.site = site
        self.options = list(options)
        self.folder = make_folder("etcd")
        self.port, self.peer_port = free_ports(2)
        self.peers = ""
        self.state = "new"
        """`existing` if it joins a cluster that is there."""
        self.link = PeerLink(self.peer_port)
        self.scheme = scheme
        self.wrapper: list[str] = []
        """The command to run the server under: `strace` and its options."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def peer_url(self) -> str:
        """The URL at which the other members reach it."""
        if self.site.far:
            return f"http://{self.site.host}:{self.peer_port}"
        return f"http://127.0.0.1:{self.link.port}"

    @property
    def address(self) -> tuple[str, int]:
        """The address and the port at which clients reach it."""
        return self.site.host, self.port

    @property
    def client_url(self) -> str:
        """The URL at which this process reaches it."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.site.open(self.port)
        here = f"{self.scheme}://{self.site.host}:{self.port}"
        command = [*self.site.inside, *self.wrapper, self._program, "--name", self.name]
        command += ["--data-dir", str(self.folder / "data")]
        command += ["--listen-client-urls", here]
        command += ["--advertise-client-urls", here]
        command += ["--listen-peer-urls", f"http://{self.site.host}:{self.peer_port}"]
        command += ["--initial-advertise-peer-urls", self.peer_url]
        command += ["--initial-cluster", self.peers, "--initial-cluster-token", self.peers]
        command += ["--initial-cluster-state", self.state]
        command += ["--logger", "zap", "--log-level", "warn", *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = start(command, environment=environment(), output=log)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self.pid, number)

    @property
    def pid(self) -> int:
        if self.process is None:
            raise ServerError(f"{self.name} does not run")
        return self.process.pid

    def kill(self) -> None:
        """As a crash would; the folder stays."""
        if self.process is not None:
            end_group(self.process)
            self.process = None

    def stop(self) -> None:
        self.kill()
        self.link.close()
        remove_folder(self.folder)


class EtcdCluster:
    """Members that make one cluster. Nothing of it is left once `stop` has returned."""

    def __init__(
        self,
        size: int = 1,
        *,
        options: Sequence[str] = (),
        ctl_options: Sequence[str] = (),
        wrapper: Sequence[str] = (),
        scheme: str = "http",
        hasty: bool = True,
        sites: Sequence[Site] = (),
    ) -> None:
        # A short election makes the shortest lease one second instead of two.
        pace = ("10", "100") if hasty else ("50", "500")
        paced = ["--heartbeat-interval", pace[0], "--election-timeout", pace[1], *options]
        places = sites or [HERE] * size
        self.members = [
            Member(f"m{number}", paced, scheme, site) for number, site in enumerate(places)
        ]
        peers = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        self.ctl_options = list(ctl_options)
        self._wire: Wire | None = None
        try:
            for member in self.members:
                member.peers = peers
                member.wrapper = list(wrapper)
                member.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return "etcd://" + ",".join(f"127.0.0.1:{member.port}" for member in self.members)

    def wait_ready(self, *members: Member) -> None:
        """Until these members, or all, answer with a leader."""
        limit = time.monotonic() + READY_LIMIT
        for member in members or self.members:
            while self._ask(member, "get", "ready", "--consistency=l").returncode:
                if member.process is None:
                    raise ServerError(f"{member.name} was not started")
                if time.monotonic() > limit:
                    raise ServerError(f"etcd does not answer:\n{member.log()}")
                if member.process.poll() is not None:
                    # Between our look and its start somebody else's connection may have that port.
                    if "address already in use" not in member.log():
                        raise ServerError(f"etcd ended:\n{member.log()}")
                    member.kill()
                    member.start()

    def ctl(self, *words: str, member: Member | None = None) -> str:
        """Returns the output of etcdctl."""
        done = self._ask(member or self.members[0], *words, limit=20)
        if done.returncode != 0:
            raise ServerError(done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="replace")

    def _ask(
        self, member: Member, *words: str, limit: int = 2
    ) -> subprocess.CompletedProcess[bytes]:
        command = ["etcdctl", f"--endpoints={member.client_url}", f"--dial-timeout={limit / 2:g}s"]
        command += [f"--command-timeout={limit}s", *self.ctl_options, *words]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        return subprocess.run(command, capture_output=True, check=False, env=environment)

    @property
    def wire(self) -> Wire:
        """A wire to the first member, without TLS."""
        if self._wire is None:
            self._wire = Wire(Address((f"127.0.0.1:{self.members[0].port}",), "", "", None))
        return self._wire

    def wipe(self) -> None:
        """Remove every key. Leases without keys do no harm to the next test."""
        # DeleteRange of everything: from the first key there can be, without an end.
        self.wire.call("/etcdserverpb.KV/DeleteRange", b"\n\1\0\x12\1\0", 20.0)

    def leader(self, *among: Member) -> Member:
        """The member that leads now; of all, or of these."""
        limit = time.monotonic() + READY_LIMIT
        while time.monotonic() < limit:
            for member in among or self.members:
                if member.process is not None:
                    fields = self._status(member)
                    if fields and fields["MemberID"] == fields["Leader"]:
                        return member
        raise ServerError("the cluster has no leader")

    def _status(self, member: Member) -> dict[str, str]:
        answer = self._ask(member, "endpoint", "status", "-w", "fields").stdout.decode()
        pairs = (line.split(" : ", 1) for line in answer.splitlines() if " : " in line)
        return {name.strip('"'): value for name, value in pairs}

    def cut_off(self, member: Member) -> None:
        """From the other members; clients still reach it."""
        who = f"{int(self._status(member)['MemberID']):x}"
        member.link.deaf = True
        for other in self.members:
            if other is not member:
                other.link.refused.add(who)
        for each in self.members:
            each.link.enforce()

    def join(self) -> None:
        """Members that were cut off can be reached again."""
        for member in self.members:
            member.link.deaf = False
            member.link.refused.clear()

    def replace(self, member: Member) -> None:
        """Have a member that was killed begin with no data, as an operator does: removed and added.

        etcd refuses a member that comes back without its data.
        """
        others = [one for one in self.members if one is not member and one.process is not None]
        leader = self.leader(*others)
        lines = self.ctl("member", "list", member=leader).splitlines()
        number = next(line.split(", ")[0] for line in lines if f", {member.peer_url}, " in line)
        self._change(leader, "remove", number)
        self._change(leader, "add", member.name, f"--peer-urls={member.peer_url}")
        shutil.rmtree(member.folder / "data", ignore_errors=True)
        member.state = "existing"

    def _change(self, leader: Member, *words: str) -> None:
        """Change the membership, once the leader has heard of the others for long enough."""
        limit = time.monotonic() + READY_LIMIT
        while True:
            try:
                self.ctl("member", *words, member=leader)
                return
            except ServerError as error:
                if "unhealthy cluster" not in str(error) or time.monotonic() > limit:
                    raise
            time.sleep(0.2)

    def heal(self) -> None:
        """Whatever was cut, paused or killed: all members are there again, with a leader."""
        self.join()
        for member in self.members:
            if member.process is None:
                member.start()
            else:
                member.resume()
        self.wait_ready()

    def stop(self) -> None:
        if self._wire is not None:
            self._wire.close()
        for member in self.members:
            member.stop()


@contextmanager
def grpc_proxy(cluster: EtcdCluster) -> Iterator[str]:
    """Yields the URL of etcd's own gRPC proxy before the cluster."""
    (port,) = free_ports(1)
    folder = make_folder("etcd-proxy")
    command = ["etcd", "grpc-proxy", "start", "--listen-addr", f"127.0.0.1:{port}"]
    command += ["--advertise-client-url", f"127.0.0.1:{port}", "--data-dir", str(folder)]
    command += ["--endpoints", ",".join(f"127.0.0.1:{one.port}" for one in cluster.members)]
    process = start(command, environment=environment())
    try:
        limit = time.monotonic() + READY_LIMIT
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            if process.poll() is not None or time.monotonic() > limit:
                raise ServerError("etcd's proxy has ended, or does not listen")
            time.sleep(0.01)
        yield f"etcd://127.0.0.1:{port}"
    finally:
        end_group(process)
        remove_folder(folder)


@cache
def trio() -> EtcdCluster:
    """Three members for the whole run. Tests that upset them `heal` them."""
    cluster = EtcdCluster(3, hasty=False)
    atexit.register(cluster.stop)
    return cluster
