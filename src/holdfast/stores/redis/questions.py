"""Questions to one Redis server, and what its replies mean for locks: also for Redlock's doctor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...clock import system_clock
from ...findings import Findings
from ..measures import Reading, read_clock
from .address import Address
from .wire.blocking_connection import Connection
from .wire.protocol import pack

EACH_LIMIT = 2.0
"""Seconds that one of several servers has to answer a question."""
NEARLY_FULL = 0.9

LOSES_LOCKS = "a lock that is forgotten while it is held lets a second holder in"


class Server:
    """One server, and a connection to it that is the doctor's own."""

    def __init__(self, address: Address, deadline: float) -> None:
        """Connects; raises `BackendUnavailable`, or `ConfigError` if the server does not let us in."""
        self.address = address
        self.name = str(address)
        self._clock = system_clock()
        self._deadline = deadline
        limit = min(deadline, self._clock.now() + EACH_LIMIT)
        self._connection = Connection(address, self._clock, limit)
        try:
            self.ask(b"PING")
        except BaseException:
            self.close()
            raise

    def ask(self, *words: bytes) -> Any:
        """Returns the reply; a refusal is returned, not raised."""
        now = self._clock.now()
        limit = min(self._deadline, now + EACH_LIMIT)
        return self._connection.call(pack(*words), limit, now)

    def info(self, section: bytes) -> dict[str, str]:
        """Returns the lines of INFO; nothing if we may not ask."""
        return _lines(self.ask(b"INFO", section))

    def cluster_info(self) -> dict[str, str]:
        return _lines(self.ask(b"CLUSTER", b"INFO"))

    def setting(self, name: bytes) -> str | None:
        """Returns a setting of the server's; None if we may not ask."""
        reply = self.ask(b"CONFIG", b"GET", name)
        if not isinstance(reply, dict) or name not in reply:
            return None
        return _text(reply[name])

    def read_clock(self) -> Reading | None:
        """Returns a reading of the server's clock; None if we may not ask."""
        if isinstance(self.ask(b"TIME"), Exception):
            return None

        def ask() -> float:
            seconds, micros = self.ask(b"TIME")
            return int(seconds) + int(micros) / 1e6

        return read_clock(self.name, ask)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def asked(address: Address, deadline: float) -> Iterator[Server]:
    """Yields a server to ask, and lets go of it."""
    server = Server(address, deadline)
    try:
        yield server
    finally:
        server.close()


def _lines(reply: Any) -> dict[str, str]:
    if isinstance(reply, Exception):
        return {}
    pairs = (line.partition(":") for line in _text(reply).splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


def _text(reply: Any) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)


def judge_version(findings: Findings, server: Server, shown: str = "") -> None:
    """Adds which version it is. One that is too old has refused the connection already."""
    info = server.info(b"server")
    if not info:
        findings.note(
            "version",
            "the user may not run INFO, so little could be looked at",
            "memory, replicas and the saving of data decide which locks survive what",
            "run this as a user with +info +config|get, or look at those yourself",
            server=shown,
        )
        return
    if "valkey_version" in info:
        findings.ok("version", f"it is Valkey {info['valkey_version']}", server=shown)
    else:
        findings.ok("version", f"it is Redis {info.get('redis_version', '')}", server=shown)


def judge_memory(findings: Findings, server: Server, shown: str = "") -> None:
    """Adds whether the server may throw locks away, or refuse them, for lack of memory."""
    info = server.info(b"memory")
    policy = info.get("maxmemory_policy") or server.setting(b"maxmemory-policy")
    if policy is None:
        return
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    mend = (
        "CONFIG SET maxmemory-policy noeviction, and write it into redis.conf; give a cache with "
        "eviction a server of its own"
    )
    if policy == "noeviction":
        findings.ok("eviction", "it evicts no keys (maxmemory-policy noeviction)", server=shown)
    elif most:
        findings.wrong(
            "eviction",
            f"it evicts keys when its memory is full (maxmemory-policy {policy})",
            f"locks have a TTL, so they are among those that go, held or not: {LOSES_LOCKS}",
            mend,
            server=shown,
        )
    else:
        findings.warning(
            "eviction",
            f"it would evict keys (maxmemory-policy {policy}), and only has no limit yet",
            f"once somebody sets maxmemory, held locks are thrown away: {LOSES_LOCKS}",
            mend,
            server=shown,
        )
    if most and used > most * NEARLY_FULL:
        findings.warning(
            "memory",
            f"its memory is {used * 100 // most} % full",
            "a server that is full refuses every new lock, and places in queues",
            "raise maxmemory, or find out what fills it",
            server=shown,
        )


def judge_persistence(findings: Findings, server: Server, shown: str = "") -> None:
    """Adds what a restart of the server forgets."""
    info = server.info(b"persistence")
    if not info:
        return
    if info.get("aof_enabled") == "1":
        _judge_log(findings, server, info, shown)
    else:
        if server.setting(b"save"):
            what, lost = (
                "it saves its data in snapshots alone",
                "the locks taken since the last one",
            )
        else:
            what, lost = "it does not save its data", "all locks"
        findings.warning(
            "persistence",
            f"{what} (appendonly no)",
            f"a restart forgets {lost}: {LOSES_LOCKS}",
            "CONFIG SET appendonly yes and appendfsync always, and write both into redis.conf; or see "
            "that nobody restarts it within a TTL",
            server=shown,
        )
    failed = [
        words
        for name, words in (
            ("rdb_last_bgsave_status", "the last snapshot"),
            ("aof_last_write_status", "the last write to its log"),
        )
        if info.get(name, "ok") != "ok"
    ]
    if failed:
        findings.wrong(
            "saving",
            f"{' and '.join(failed)} failed",
            "a server that cannot save refuses writes, so no lock can be taken or renewed",
            "look at its log and at the space on its disk",
            server=shown,
        )


def _judge_log(findings: Findings, server: Server, info: dict[str, str], shown: str) -> None:
    mode = server.setting(b"appendfsync")
    if mode == "always":
        findings.ok("persistence", "it saves each lock at once (appendfsync always)", server=shown)
    elif mode is None:
        findings.note(
            "persistence",
            "it keeps a log (appendonly yes); CONFIG GET appendfsync is not allowed",
            "only with appendfsync always does a crash of its machine forget nothing",
            "let somebody look who may: CONFIG GET appendfsync",
            server=shown,
        )
    else:
        lost = "the locks of the last second or two" if mode == "everysec" else "the latest locks"
        findings.note(
            "persistence",
            f"it saves its log {'each second' if mode == 'everysec' else 'when the system likes'} "
            f"(appendfsync {mode})",
            f"a crash of its machine forgets {lost}: {LOSES_LOCKS}",
            "CONFIG SET appendfsync always, if its disk is quick enough",
            server=shown,
        )
