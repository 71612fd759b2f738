"""`python -m zookeeper.lab`: an ensemble with a network of its own, in which servers are cut off.

Run inside `unshare -Unpf --map-current-user --keep-caps --mount-proc --kill-child`: every server has a
network namespace on one bridge, and a cut is a route to nowhere at both ends. Prints its report.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from typing import Any

import holdfast
from holdfast.chaos.servers.zookeeper import TICK, Node, ZooKeeperEnsemble
from worlds.threads import Job, eventually

NET = "10.213.0"
TTL = 4.0
OPTIONS = "syncLimit=16\n"
"""Ticks after which servers notice that they have lost each other: here later than a session ends."""

ELECTED = 100.0
"""Seconds until the servers that are left must have elected a leader: 15 is usual."""


def ip(*words: object, at: int | None = None, commands: str = "") -> None:
    """Runs `ip` with these words, or with many commands, in the network of the process `at`."""
    inside = [] if at is None else ["nsenter", "-t", str(at), "-n"]
    subprocess.run([*inside, "ip", *map(str, words)], input=commands, text=True, check=True)


class Lab:
    def __init__(self) -> None:
        ip("link", "set", "lo", "up")
        ip("link", "add", "hub", "type", "bridge")
        ip("addr", "add", f"{NET}.100/24", "dev", "hub")
        ip("link", "set", "hub", "up")
        self._rooms = [self._room(number) for number in (1, 2, 3)]
        places = [
            (f"{NET}.{number}", ("nsenter", "-t", str(pid), "-n"))
            for number, pid in enumerate(self._rooms, 1)
        ]
        self.ensemble = ZooKeeperEnsemble(places, OPTIONS)

    def _room(self, number: int) -> int:
        """Makes a network namespace; returns the id of a process in it."""
        sleeper = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo in; exec sleep 1000"], stdout=subprocess.PIPE
        )
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        pid = sleeper.pid
        ip("link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", pid)
        ip("link", "set", f"v{number}", "master", "hub")
        ip("link", "set", f"v{number}", "up")
        ip("link", "set", "lo", "up", at=pid)
        ip("addr", "add", f"{NET}.{number}/24", "dev", "eth0", at=pid)
        ip("link", "set", "eth0", "up", at=pid)
        return pid

    def cut(self, node: Node, verb: str = "add") -> None:
        """Cuts `node` off from its peers; clients still reach all of them."""
        others = [other for other in self.ensemble.nodes if other is not node]
        routes = [f"route {verb} blackhole {other.host}/32\n" for other in others]
        ip("-batch", "-", at=self._rooms[node.number - 1], commands="".join(routes))  # at once
        for other in others:
            ip("route", verb, "blackhole", f"{node.host}/32", at=self._rooms[other.number - 1])

    def _all_have_the_same(self) -> bool:
        seen = {one.last_write() for one in self.ensemble.nodes}
        return len(seen) == 1 and "" not in seen

    def heal(self, node: Node) -> None:
        self.cut(node, "del")
        self.ensemble.ready()

    def scene(self, name: str, node: Node) -> dict[str, Any]:
        """Cuts off `node`, with a holder on it and a rival on the others; returns what was seen."""
        others = ",".join(one.address for one in self.ensemble.nodes if one is not node)
        events: list[str] = []
        options: dict[str, Any] = {"tick": TICK}
        with (
            holdfast.connect(f"zookeeper://{node.address}", **options) as locks,
            holdfast.connect(f"zookeeper://{others}", **options) as rivals,
        ):
            locks.on_event(lambda event: events.append(event.kind))
            lease = locks.lock(name, ttl=TTL).acquire()
            lost: list[object] = []
            lease.on_lost(lost.append)
            rival = Job(_acquire, rivals, name)
            eventually(lambda: len(rivals.inspect(name).waiters) == 1)
            eventually(lambda: "renewed" in events)
            # If one of the others has a write that the next has not, ZooKeeper 3.8.0 may elect
            # for minutes: a leader ends at the first answer that it did not wait for (ZOOKEEPER-4685).
            eventually(self._all_have_the_same)
            self.cut(node)
            token = rival.result(ELECTED).token
            held = lease.held
            eventually(lambda: lost)
            answered = "Mode: " in node.ask("srvr")
            self.heal(node)
        return {
            "held when the rival was granted": held,
            "tokens": [lease.token, token],
            "the node still served": answered,
        }


def _acquire(locks: holdfast.Locks, name: str) -> holdfast.Lease:
    """Acquires a lock, however long the servers that are left take to elect a leader."""
    while True:
        with suppress(holdfast.BackendUnavailable):
            return locks.lock(name).acquire()


def main() -> None:
    lab = Lab()
    try:
        seen = {"follower": lab.scene("follower", lab.ensemble.followers()[0])}
        seen["leader"] = lab.scene("leader", lab.ensemble.leader())
    finally:
        lab.ensemble.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
