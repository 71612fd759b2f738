"""The doctor of ZooKeeper: its servers, its sessions, its tick, and what this user may do.

Servers tell of themselves by "four letter words" (`srvr`, `conf`), of which an administrator may have
closed some or all. What they would have told is then said to be unknown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import checks
from ...clock import system_clock
from ...errors import BackendUnavailable, LockError
from ...findings import Findings
from ...interrupts import let_through
from ..measures import (
    SAMPLES,
    USUAL_TTL,
    connected,
    judge_clocks,
    judge_round_trips,
    read_clock,
)
from ..tls import in_words
from ..urls import Target, merge_options
from ._sync.backend import OPTIONS
from .address import Address, address_of, require_kazoo

if TYPE_CHECKING:
    from .client import Client

EACH_LIMIT = 2.0
"""Seconds that one server has to answer a question."""
VOTING = ("leader", "follower")
WHY_CLOCK = (
    "the leader's clock decides when an exported lease has ended, and is what people are shown"
)


class Server(NamedTuple):
    """One server, as it tells of itself."""

    name: str
    failure: str = ""
    version: str = ""
    mode: str = ""
    """leader, follower, observer or standalone; empty if it does not tell."""
    tick: float = 0.0
    """Seconds; 0 if it does not tell."""

    @property
    def idle(self) -> bool:
        """Whether it answers, but serves nobody: it has no majority."""
        return not self.failure and self.mode == "idle"


def examine(target: Target, namespace: str, options: dict[str, Any], deadline: float) -> Findings:
    """Returns the findings about the ensemble that a URL names."""
    settings = merge_options(target, options, OPTIONS)
    tick = checks.ttl(settings["tick"], "tick")
    require_kazoo()
    address = address_of(target, settings)
    findings = Findings()
    servers = [_ask(host, address, deadline) for host in address.hosts.split(",")]
    if all(server.failure for server in servers):
        raise BackendUnavailable(f"no server answers: {servers[0].failure}")
    _judge_servers(findings, servers)
    _judge_tick(findings, servers, tick)
    _visit(findings, address, tick, deadline)
    return findings


# The servers, by their own words.


def _ask(host: str, address: Address, deadline: float) -> Server:
    try:
        text = _word(host, "srvr", address, deadline)
        conf = _word(host, "conf", address, deadline)
    except OSError as error:
        return Server(host, failure=f"it cannot be reached: {error.strerror or error}")
    version = re.search(r"ersion: (\d[\d.]*)", text)
    mode = re.search(r"Mode: (\w+)", text)
    tick = re.search(r"^tickTime=(\d+)", conf, re.MULTILINE)
    serving = "not currently serving" not in text
    return Server(
        host,
        version=version[1] if version else "",
        mode=mode[1] if mode else "" if serving else "idle",
        tick=int(tick[1]) / 1000 if tick else 0.0,
    )


def _word(host: str, word: str, address: Address, deadline: float) -> str:
    """Returns the server's reply to a four letter word; a word that is closed has another text."""
    name, _, port = host.rpartition(":")
    name = name.removeprefix("[").removesuffix("]")
    now = system_clock().now
    until = min(deadline, now() + EACH_LIMIT)
    with connected(name, int(port), until) as plain:
        sock = plain
        if address.tls is not None:
            try:
                sock = address.tls.wrap_socket(plain, server_hostname=name)
            except OSError as error:
                let_through(error)
                raise in_words(error, address.tls) from None
        text = b""
        try:
            sock.sendall(word.encode())
            while (data := sock.recv(65536)) and now() < until:
                text += data
        except ConnectionResetError:
            text = b""  # as some do with words that are closed
        finally:
            if sock is not plain:
                sock.close()
    return text.decode(errors="replace")


def _judge_servers(findings: Findings, servers: Sequence[Server]) -> None:
    total = len(servers)
    answering = [one for one in servers if not one.failure]
    known = [one for one in answering if one.mode]
    for version in sorted({one.version for one in known if one.version}):
        findings.ok("version", f"it is ZooKeeper {version}")
    for server in servers:
        if server.failure or server.idle:
            findings.warning(
                "reachable",
                server.failure or "it answers, but serves nobody, as it sees no majority",
                "one more that fails may be one too many for a majority",
                "start it, or find out what is between it and the others",
                server=server.name,
            )
    shut = [one.name for one in answering if not one.mode]
    if shut:
        findings.note(
            "words",
            f"{_listed(shut)} {'does' if len(shut) == 1 else 'do'} not tell who leads",
            "the four letter word srvr is closed there, so how many servers there are, and "
            "whether they "
            "agree, is not known",
            "4lw.commands.whitelist=srvr,conf in zoo.cfg; or look at echo srvr | nc HOST PORT there",
        )
    modes = [one.mode for one in known]
    if modes.count("leader") > 1 or (modes.count("standalone") and total > 1):
        findings.wrong(
            "ensemble",
            "the URL names servers that are not of one ensemble: "
            + ", ".join(f"{one.name} {one.mode}" for one in known),
            "each ensemble has locks of its own: two holders, one in each, exclude nobody",
            "name the servers of one ensemble; see the server.N lines in zoo.cfg",
        )
    elif modes == ["standalone"]:
        findings.note(
            "ensemble",
            "it is one server alone (standalone)",
            "no lock can be taken while it is down; if its disk is lost, tokens begin anew",
            "run three servers on three machines",
        )
    elif known and not shut:
        _judge_ensemble(findings, modes, total)


def _judge_ensemble(findings: Findings, modes: Sequence[str], total: int) -> None:
    voting = sum(mode in VOTING for mode in modes)
    observers = modes.count("observer")
    spare = (total - observers - 1) // 2
    if "leader" not in modes:
        findings.note(
            "ensemble",
            f"none of the {total} servers that the URL names is the leader",
            "clients that know only some of the servers lose the ensemble when those are down",
            "name all servers of the ensemble",
        )
    elif (total - observers) % 2 == 0:
        findings.note(
            "ensemble",
            f"the URL names {total - observers} servers that vote",
            "if that is all of them: an even number survives no more failures than one less",
            "name all servers; run an odd number",
        )
    else:
        findings.ok(
            "ensemble", f"{voting} of {total} servers vote, with one leader; {spare} may fail"
        )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)


def _judge_tick(findings: Findings, servers: Sequence[Server], tick: float) -> None:
    """Adds whether our idea of the ensemble's tick is right."""
    known = {one.tick for one in servers if one.tick}
    if not known:
        findings.note(
            "tick",
            f"the tickTime of the servers is not known; we count with tick={tick:g}",
            "the four letter word conf is closed. If tickTime is longer than the option tick, a holder "
            "counts on its lease for too long",
            "look for tickTime in zoo.cfg, and give the option tick in seconds",
        )
    elif max(known) > tick:
        findings.wrong(
            "tick",
            f"tickTime is {max(known):g} s, and the option tick is {tick:g}",
            "a follower that is cut off notices it a tick later than we count with, so a holder may "
            "count on a lease that has ended",
            f"connect with tick={max(known):g}",
        )
    elif max(known) < tick:
        findings.note(
            "tick",
            f"tickTime is {max(known):g} s, and the option tick is {tick:g}",
            "leases are safe, but sessions are longer than they need to be: the lock of a holder that "
            "died is free later",
            f"connect with tick={max(known):g}",
        )
    else:
        findings.ok("tick", f"tickTime is {tick:g} s, as the option tick says")


# A session of our own.


class Visit:
    """A session with the ensemble, for a few requests, each of which is waited for."""

    def __init__(self, address: Address, timeout: float, deadline: float) -> None:
        from .client import Client  # kazoo takes a tenth of a second to import
        from .requests import KazooState

        self._clock = system_clock()
        self._deadline = deadline
        connected = Event()

        def on_state(state: str) -> None:
            if state == KazooState.CONNECTED:
                connected.set()

        self.client: Client = Client(address, timeout, on_state, lambda: None, self._clock.now)
        self.client.start_async()
        if not connected.wait(self._left()):
            reason = self.client.failure or "it does not answer in time"
            self.close()
            raise BackendUnavailable(f"the ensemble at {address} gives no session: {reason}")

    def _left(self) -> float:
        return max(0.001, self._deadline - self._clock.now())

    def call(self, request: Any) -> Any:
        """Returns the reply; raises kazoo's error, or `BackendUnavailable`."""
        done = Event()
        found: list[Any] = []

        def on_reply(value: Any, error: Exception | None) -> None:
            found.append((value, error))
            done.set()

        self.client.send(request, on_reply)
        if not done.wait(min(self._left(), EACH_LIMIT)):
            raise BackendUnavailable("the ensemble does not answer by a majority")
        value, error = found[0]
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Ends the session, and with it all that was created in it."""
        ended = Event()
        self.client.end(ended.set)
        ended.wait(1.0)


def _visit(findings: Findings, address: Address, tick: float, deadline: float) -> None:
    try:
        visit = Visit(address, _asked_for(USUAL_TTL, tick), deadline)
    except LockError as error:
        findings.wrong(
            "session",
            str(error),
            "every lock is on a session, so none can be taken",
            "start the servers that are down; check the user and the password",
        )
        return
    try:
        longest = _ttl_of(visit.client.session_timeout, tick)
        if longest < USUAL_TTL - 0.01:
            findings.warning(
                "session",
                f"the longest session has {visit.client.session_timeout:g} s",
                f"a TTL of {USUAL_TTL:g} s, as it is if nothing is said, becomes "
                f"{max(longest, 0):.0f} s",
                f"maxSessionTimeout={_asked_for(USUAL_TTL, tick) * 1000:.0f} in zoo.cfg, or "
                "shorter TTLs",
            )
        else:
            findings.ok("session", f"sessions are long enough for a TTL of {USUAL_TTL:g} s")
        _judge_writes(findings, visit, address, tick, deadline)
    finally:
        visit.close()


def _asked_for(ttl: float, tick: float) -> float:
    """Returns the session timeout that a TTL needs, as `session` asks for it."""
    return max(ttl * 1.2, ttl + 1.5 * tick) + tick


def _ttl_of(timeout: float, tick: float) -> float:
    """Returns the longest TTL that a session can carry, as `session` has it."""
    return timeout - tick - 3 * max(tick / 2, (timeout - tick) / 18)


def _judge_writes(
    findings: Findings, visit: Visit, address: Address, tick: float, deadline: float
) -> None:
    """Adds whether this user may create znodes, what the leader's clock shows, and how quick it is."""
    from .requests import EPHEMERAL, NoNodeError, create, delete

    root = address.chroot
    paths: list[str] = []

    def ask() -> float:
        nonlocal root
        while True:
            path = f"{root}/holdfast-doctor-{os.urandom(6).hex()}"
            try:
                _, stat = visit.call(create(visit.client, path, b"", EPHEMERAL))
            except NoNodeError:
                root = root.rpartition("/")[0]  # the chroot is made by the first client
                continue
            paths.append(path)
            return float(stat.ctime) / 1000

    try:
        try:
            reading = read_clock("", ask, 0.001)
        finally:
            for path in paths[-SAMPLES:]:
                with suppress(Exception):  # they end with the session, too
                    visit.call(delete(path))
    except Exception as error:
        reason = str(error) or type(error).__name__
        findings.wrong(
            "writes",
            f"znodes cannot be created below {address.chroot or '/'}: {reason}",
            "each lock is a znode",
            "give the user in the URL (zookeeper://user:password@host), or have the ACL changed; if no "
            "majority answers, start the servers that are down",
        )
        return
    findings.ok("writes", f"this user may create znodes below {address.chroot or '/'}")
    judge_clocks(findings, [reading], WHY_CLOCK, named=False)
    shortest = _ttl_of(_shortest_session(address, tick, deadline), tick)
    judge_round_trips(findings, reading.trip, max(shortest, 1.0))


def _shortest_session(address: Address, tick: float, deadline: float) -> float:
    """Returns the shortest session timeout that is given for a TTL of one second."""
    try:
        visit = Visit(address, _asked_for(1.0, tick), deadline)
    except LockError:
        return 0.0
    try:
        return visit.client.session_timeout
    finally:
        visit.close()
