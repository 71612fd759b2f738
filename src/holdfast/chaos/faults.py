"""Faults: what a run may do to workers, to the store's nodes, and to the network between them."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """One kind of fault, by the name that `--faults` takes."""

    name: str
    title: str
    """A short name for people."""
    text: str
    """A sentence that says what is done."""
    tier: str
    """The tier (of `holdfast.chaos.tiers`) without which no lab can do it."""
    lasts: tuple[float, float] = (0.0, 0.0)
    """The shortest and the longest time until it is mended, in TTLs; 0 and 0: it is over at once."""

    @property
    def momentary(self) -> bool:
        """Whether it is over at once, so that nothing has to be waited for before it is mended."""
        return self.lasts[1] == 0.0


CLIENTS, STORES, NAMESPACES, STRACE = "clients", "stores", "namespaces", "strace"
CLOCK, VDSO = "clock", "vdso"

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            "pause",
            "process pause",
            "a worker stands still for longer than its lease lasts, then goes on",
            CLIENTS,
            (1.3, 2.0),
        ),
        Fault(
            "holder-crash",
            "holder crash",
            "a worker is killed (SIGKILL) while it holds the lock",
            CLIENTS,
        ),
        Fault(
            "partition",
            "network partition",
            "nothing arrives between a worker and the store, or between the nodes of a cluster",
            CLIENTS,
            (1.2, 2.0),
        ),
        Fault(
            "cut",
            "packets cut",
            "no packet passes between a worker and the store, or between nodes: one way, or both",
            NAMESPACES,
            (1.2, 2.0),
        ),
        Fault(
            "loss",
            "packets lost",
            "of the packets between a worker and the store, or between nodes, a third is lost, a third "
            "overtaken",
            NAMESPACES,
            (1.2, 2.0),
        ),
        Fault(
            "delay",
            "delayed request",
            "a request of a worker arrives late: at the store, or at the resource",
            CLIENTS,
            (1.2, 1.6),
        ),
        Fault(
            "lost-reply",
            "lost reply",
            "a request of a worker is carried out, and its reply never arrives",
            CLIENTS,
            (0.5, 0.8),
        ),
        Fault(
            "reset",
            "connection reset",
            "the connections of a worker are reset, with a request under way",
            CLIENTS,
            (0.1, 0.3),
        ),
        Fault(
            "store-pause",
            "store pause",
            "a node of the store stands still, then goes on",
            STORES,
            (1.2, 1.8),
        ),
        Fault(
            "store-crash",
            "store crash",
            "a node of the store is killed (SIGKILL), and started again with its data",
            STORES,
            (0.1, 0.6),
        ),
        Fault(
            "amnesia",
            "node amnesia",
            "a node of the store is killed, and comes back without its data",
            STORES,
            (0.0, 0.1),
        ),
        Fault(
            "failover",
            "failover that forgets",
            "the replica is cut off, the primary is killed, and the replica takes its place",
            STORES,
            (0.2, 0.5),
        ),
        Fault(
            "clock",
            "clock skew",
            "the wall clock of one node is stepped, forward or back, by more than the TTL",
            CLOCK,
            (1.0, 2.0),
        ),
        Fault(
            "slow-disk",
            "slow disk",
            "each sync of a node's disk takes long",
            STRACE,
            (1.0, 2.0),
        ),
        Fault(
            "disk-error",
            "failing disk",
            "the syncs of a node's disk fail (EIO), after which it is killed and started again",
            STRACE,
            (0.3, 0.6),
        ),
        Fault(
            "kill-at-call",
            "kill at a system call",
            "a worker is killed at the very system call by which it sends or receives",
            STRACE,
            (0.5, 0.8),
        ),
    )
}

SEEDS = (
    "pause",
    "clock",
    "partition",
    "holder-crash",
    "store-crash",
    "failover",
    "delay",
    "amnesia",
)
"""The faults that every account of distributed locks names; the others come on top."""
