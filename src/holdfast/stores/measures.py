"""Measures that the doctors of all stores share: clocks, round trips, and a trial of a lock."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..clock import system_clock
from ..entries import Claim
from ..errors import BackendUnavailable, LockError
from ..findings import Findings
from ..model import Granted, Label, Renewed
from ._sync.contract import Backend, Terms, Ticket
from .resolving import resolve

TOLERATED = 0.5
"""Seconds by which clocks may differ before it is worth a word."""
SAMPLES = 5
"""How often a server is asked for the time; the quickest reply says it best."""
ROUND_TRIPS = 10
"""The round trips that a TTL should have room for: a lease is renewed each third of it, and two
renewals in a row may be lost or take three times as long as the slowest that was seen."""
SLOW = 0.5
"""Seconds of a round trip that are too many for what a store has to do in its claim window."""
USUAL_TTL = 30.0
"""The TTL of a lock for which none is given."""
TRIAL_TTL = 5.0


class Reading(NamedTuple):
    """A reading of one server's clock, and how long it took."""

    server: str
    ahead: float
    """Seconds by which its clock is ahead of ours; below 0: behind."""
    unsure: float
    """Seconds by which that may be wrong, either way."""
    trip: float
    """Seconds of a slow round trip, see `slow_trip`."""


def read_clock(server: str, ask: Callable[[], float], resolution: float = 0.0) -> Reading:
    """Returns a reading of the clock that `ask` asks, in seconds since the epoch."""
    trips: list[tuple[float, float]] = []
    for _ in range(SAMPLES):
        began, wall = time.monotonic(), time.time()
        theirs = ask()
        took = time.monotonic() - began
        trips.append((took, theirs - (wall + took / 2)))
    quickest, ahead = min(trips)
    trip = slow_trip([took for took, _ in trips])
    return Reading(server, ahead, quickest / 2 + resolution, trip)


def slow_trip(seconds: Sequence[float]) -> float:
    """Returns the slowest round trip but one: a single pause says nothing of the way."""
    return sorted(seconds)[-2]


def judge_clocks(
    findings: Findings, readings: Sequence[Reading], why: str, named: bool = True
) -> None:
    """Adds what there is to say of the clocks of servers. `why` is why it matters for this store."""
    bad = [one for one in readings if abs(one.ahead) - one.unsure > TOLERATED]
    for one in bad:
        way = "ahead of" if one.ahead > 0 else "behind"
        findings.warning(
            "clock",
            f"its clock is {abs(one.ahead):.1f} s {way} ours",
            why,
            "let NTP (chrony, systemd-timesyncd) set the clocks of all machines, this one too",
            server=one.server if named else "",
        )
    if readings and not bad:
        far = max(abs(one.ahead) + one.unsure for one in readings)
        if len(readings) == 1:
            findings.ok("clock", f"its clock differs from ours by less than {_ms(far)}")
        else:
            findings.ok(
                "clock", f"all {len(readings)} clocks differ from ours by less than {_ms(far)}"
            )


def judge_round_trips(findings: Findings, trip: float, least: float = 0.0) -> None:
    """Adds what TTL a slow round trip allows; the store itself gives none below `least`."""
    shortest = max(ROUND_TRIPS * trip, least, 0.1)
    said = f"a round trip took {_ms(trip)}"
    if trip <= SLOW:
        findings.ok("round-trip", f"{said}: TTLs from {_seconds(shortest)} on are fine")
        return
    findings.warning(
        "round-trip",
        said,
        f"a lease is renewed each third of its TTL: with one below {_seconds(shortest)} it may end "
        "although its holder is alive; and who is handed a lock has to confirm it within the "
        "claim window",
        f"use TTLs of {_seconds(shortest)} or more and a longer claim_window, or a store that is "
        "nearer",
    )


def connected(host: str, port: int, deadline: float) -> socket.socket:
    """Returns a socket that is connected; raises `OSError` if it is not by the deadline.

    What is sent and received on it may take as long again.
    """
    now = system_clock().now
    limit = deadline - now()
    reason: OSError = TimeoutError("it did not answer in time")
    for family, where in resolve(host, port, deadline, now):
        left = deadline - now()
        if left <= 0:
            break
        sock = socket.socket(family)
        try:
            sock.settimeout(left)
            sock.connect(where)
            sock.settimeout(limit)
            return sock
        except OSError as error:
            sock.close()
            reason = error
        except BaseException:
            sock.close()
            raise
    raise reason


def _ms(seconds: float) -> str:
    seconds = max(seconds, 0.0001)
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def trial_namespace(namespace: str) -> str:
    """Returns a namespace that nobody else uses, inside `namespace` for servers that ask by prefix."""
    return f"{namespace}:doctor-{os.urandom(6).hex()}"


TRIAL = "trial"
"""The name of the lock that is tried out."""
OWNERS = ("doctor-1", "doctor-2")


def try_out(backend: Backend, deadline: float) -> None:
    """Takes a lock, waits for it, hands it over and releases it; raises what the store refuses.

    The backend has a namespace of its own, and is closed at the end.
    """
    terms = Terms(TRIAL, TRIAL_TTL, Label("", 0, "holdfast doctor"))
    first, second = (Ticket(terms, owner) for owner in OWNERS)
    backend.open(deadline)
    try:
        if not isinstance(backend.acquire(first, deadline), Granted):
            raise BackendUnavailable("a lock that nobody holds was not granted")
        backend.acquire(second, deadline)
        backend.release(TRIAL, first.owner, deadline)
        while not isinstance(
            backend.renew([Claim(TRIAL, second.owner, TRIAL_TTL)], deadline)[0], Renewed
        ):
            if system_clock().now() >= deadline:
                raise BackendUnavailable("a lock that was released was not handed over")
            time.sleep(0.01)
        backend.release(TRIAL, second.owner, deadline)
    finally:
        for owner in OWNERS:
            with suppress(LockError):
                backend.release(TRIAL, owner, deadline)
        backend.close()
