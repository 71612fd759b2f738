"""Reports as `holdfast chaos` writes them, made up: for the tests of what is drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

LEASE = 2.0
Event = dict[str, Any]


class Story:
    """A run that is made up: workers that take turns, and what befell some of them."""

    def __init__(self, workers: int = 4, nodes: Sequence[str] = ("redis",), seed: int = 1) -> None:
        self.random = Random(seed)
        self.workers = [f"worker-{i + 1}" for i in range(workers)]
        self.lanes = [
            *({"id": name, "kind": "worker", "name": name} for name in self.workers),
            {"id": "fenced", "kind": "register", "name": "with a fence"},
            {"id": "unfenced", "kind": "register", "name": "without a fence"},
            *({"id": name, "kind": "node", "name": name} for name in nodes),
        ]
        self.events: list[Event] = []
        self.now = 0.0
        self.token = 30
        self.highest = 0
        self.number = 0
        for name in self.workers:
            self.add(0.0, name, "start", text="pid 4711")
            self.add(0.01, name, "ask", lock="invoice:42", owner=f"{name}/1")

    def add(self, at: float, lane: str, kind: str, **fields: Any) -> None:
        self.events.append({"at": round(at, 6), "lane": lane, "kind": kind, **fields})

    def grant(self, worker: str) -> int:
        self.token += 1
        self.add(
            self.now, worker, "grant", lock="invoice:42", owner="o", token=self.token, ttl=LEASE
        )
        return self.token

    def write(self, worker: str, token: int, at: float, late: float = 0.004) -> None:
        """Writes to both registers; the fenced one refuses what is stale."""
        self.number += 1
        self.add(at, worker, "send", token=token, number=self.number)
        stale = token < self.highest
        self.highest = max(token, self.highest)
        for register in ("fenced", "unfenced"):
            taken = not stale or register == "unfenced"
            fields: Event = {
                "token": token,
                "number": self.number,
                "accepted": taken,
                "stale": stale,
            }
            fields |= {"register": register, "from": worker}
            self.add(at + late, register, "write", **fields)

    def hold(self, worker: str, seconds: float, writes: int = 2) -> None:
        """Lets a worker have the lock for `seconds`, and ask for it again afterwards."""
        token = self.grant(worker)
        for i in range(writes):
            at = self.now + seconds * (i + 1) / (writes + 1)
            self.add(at - 0.001, worker, "seen", token=token)
            self.write(worker, token, at)
        self.now += seconds
        self.add(self.now, worker, "release", token=token)
        self.add(self.now + 0.003, worker, "end", token=token, text="released")
        self.add(self.now + 0.02, worker, "ask", lock="invoice:42", owner="o")
        self.now += 0.005

    def calm(self, until: float) -> None:
        """Lets the workers take turns until then."""
        while self.now < until:
            self.hold(self.random.choice(self.workers), 0.1 + self.random.random() * 0.4)

    def pause(self, worker: str, stale_writes: int = 1, overlap: float = 0.0) -> None:
        """Pauses a worker for longer than its lease; it writes when it wakes, then finds out."""
        token = self.grant(worker)
        self.write(worker, token, self.now + 0.1)
        self.add(self.now + 0.1, worker, "seen", token=token)
        begun = self.now + 0.15
        woke = begun + LEASE + 1.2
        text = "SIGSTOP, then SIGCONT"
        self.add(begun, worker, "fault", name="pause", until=woke, text=text)
        self.now = begun + LEASE + 0.05
        others = [name for name in self.workers if name != worker]
        while self.now < woke - 0.4:
            self.hold(self.random.choice(others), 0.2 + self.random.random() * 0.2)
        rival = self.random.choice(others)
        held = self.grant(rival)
        self.write(rival, held, self.now + 0.1)
        for i in range(stale_writes):
            self.write(worker, token, woke + 0.01 + 0.1 * i)
        if overlap:
            self.add(woke + overlap, worker, "seen", token=token)
            self.add(woke + overlap + 0.1, rival, "seen", token=held)
        told = woke + overlap + 0.05 + 0.1 * stale_writes
        self.add(
            told, worker, "told", token=token, text="the lease ended while the process stood still"
        )
        self.now = told + 0.4
        self.add(self.now - 0.05, rival, "seen", token=held)
        self.add(self.now, rival, "release", token=held)
        self.add(self.now + 0.003, rival, "end", token=held, text="released")
        for name in (rival, worker):
            self.add(self.now + 0.01, name, "ask", lock="invoice:42", owner="o")
        self.now += 0.005

    def outage(self, nodes: Sequence[str], name: str, seconds: float, text: str = "") -> None:
        """Breaks nodes for `seconds`; the workers fail to get the lock."""
        for node in nodes:
            self.add(self.now, node, "fault", name=name, until=self.now + seconds, text=text)
        for worker in self.workers:
            self.add(self.now + seconds * 0.7, worker, "fail", text="the store did not answer")
            self.add(self.now + seconds, worker, "ask", lock="invoice:42", owner="o")
        self.now += seconds

    def run(self, **fields: Any) -> dict[str, Any]:
        writes = [event for event in self.events if event["kind"] == "write" and event["stale"]]
        refused = sum(not event["accepted"] for event in writes)
        figures = {
            "grants": sum(event["kind"] == "grant" for event in self.events),
            "stale_tried": len(writes) // 2,
            "stale_refused": refused,
            "stale_accepted": 0,
            "stale_accepted_unfenced": len(writes) - refused,
            "overlaps": 0,
            "overlap_seconds": 0.0,
            "told_before": None,
            "recovery_seconds": 0.21,
            "ghosts": 0,
        }
        run = {
            "library": "holdfast",
            "control": None,
            "began": 0.0,
            "ended": self.now,
            "lanes": self.lanes,
            "events": self.events,
            "figures": figures | fields.pop("figures", {}),
            "passed": True,
        }
        return run | fields


def verdict(rule: str, held: bool, text: str, demand: str = "must hold", **fields: Any) -> Event:
    found = {
        "rule": rule,
        "demand": demand,
        "claim": None,
        "held": held,
        "count": 0,
        "seconds": None,
    }
    return found | {"text": text} | fields


def redis_pause() -> dict[str, Any]:
    story = Story()
    story.calm(3.0)
    story.pause("worker-2")
    story.calm(story.now + 3)
    story.pause("worker-4", stale_writes=2, overlap=0.5)
    story.calm(story.now + 2)
    return story.run(
        id="redis-pause",
        store="redis",
        fault="pause",
        title="redis: process pause",
        figures={"overlaps": 1, "overlap_seconds": 0.5},
        verdicts=[
            verdict(
                "stale writes accepted (fenced)", True, "3 stale writes arrived, 3 were refused"
            ),
            verdict("token order", True, "46 grants, each with a higher token than the one before"),
            verdict("recovery", True, "granted again 0.21 s after the last fault", seconds=0.21),
            verdict("ghosts", True, "nothing was left on the store"),
            verdict(
                "exclusion",
                False,
                "worker-4 and worker-1 counted on the lock at the same time",
                "reported",
                count=1,
                seconds=0.5,
                claim="two holders are possible while a process is paused",
            ),
            verdict(
                "stale writes accepted (unfenced)",
                False,
                "3 writes of holders that had been replaced",
                "reported",
                count=3,
            ),
        ],
    )


def etcd_partition() -> dict[str, Any]:
    nodes = ("etcd-1", "etcd-2", "etcd-3")
    story = Story(5, nodes, seed=2)
    story.calm(2.5)
    story.outage(nodes[:1], "partition", 2.2, "the leader is cut off from the others")
    story.calm(story.now + 4)
    story.outage(nodes[1:2], "partition", 1.6, "cut off in one direction")
    story.calm(story.now + 3)
    return story.run(
        id="etcd-partition",
        store="etcd",
        fault="partition",
        title="etcd: network partition",
        verdicts=[
            verdict("exclusion", True, "no two processes held the lock at once"),
            verdict("stale writes accepted (fenced)", True, "none was tried"),
            verdict("token order", True, "tokens rose"),
            verdict("recovery", True, "granted again in time", seconds=1.9),
        ],
    )


def redlock_amnesia() -> dict[str, Any]:
    nodes = tuple(f"redis-{i}" for i in range(1, 6))
    story = Story(3, nodes, seed=3)
    story.calm(2.0)
    story.outage(nodes[1:4], "amnesia", 0.8, "killed, and started again empty")
    story.pause("worker-1", overlap=0.9)
    story.calm(story.now + 2)
    return story.run(
        id="redlock-amnesia",
        store="redlock",
        fault="amnesia",
        title="redlock: node amnesia",
        figures={"overlaps": 1, "overlap_seconds": 0.9},
        verdicts=[
            verdict("stale writes accepted (fenced)", True, "the fence refused 1 stale write"),
            verdict("weakness declared", True, "a node that forgets is declared"),
            verdict("exclusion", False, "two holders", "reported", count=1, seconds=0.9),
        ],
    )


def control() -> dict[str, Any]:
    story = Story(2, seed=4)
    story.calm(1.0)
    story.pause("worker-1", overlap=0.7)
    for event in story.events:
        if event["kind"] in ("grant", "seen", "told", "release", "end", "send", "write"):
            event["token"] = None
    return story.run(
        id="redis-py-pause",
        library="redis-py",
        store="redis",
        fault="pause",
        control="exclusion",
        title="redis-py on redis: process pause",
        verdicts=[verdict("exclusion", False, "two holders for 0.7 s", count=1, seconds=0.7)],
    )


def report(*runs: dict[str, Any]) -> dict[str, Any]:
    tiers = [
        {"name": "clients and a proxy", "available": True, "why": ""},
        {"name": "network namespaces", "available": True, "why": ""},
        {"name": "strace", "available": False, "why": "strace is not installed"},
    ]
    return {
        "version": 1,
        "holdfast": "0.3.0",
        "command": "holdfast chaos --backend redis --faults pause --seed 42 --duration 20",
        "seed": 42,
        "duration": 20.0,
        "machine": "Linux, 2 processors, Python 3.13",
        "tiers": tiers,
        "runs": list(runs),
        "passed": all(run["passed"] for run in runs),
    }


def several() -> dict[str, Any]:
    return report(redis_pause(), etcd_partition(), redlock_amnesia(), control())


def large(events: int = 50_000, workers: int = 32) -> dict[str, Any]:
    """Returns a report of one run with about as many events."""
    story = Story(workers, ("redis-1", "redis-2"), seed=5)
    while len(story.events) < events:
        story.calm(story.now + 20)
        story.pause(story.random.choice(story.workers), overlap=0.2)
    return report(story.run(id="large", store="redis", fault="pause", title="", verdicts=[]))
