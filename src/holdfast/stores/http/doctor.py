"""The doctor of a lock service: is it reached safely, is it one store, and what its own doctor says."""

from __future__ import annotations

import ipaddress
import json
import os
import time
from typing import Any

from ...clock import system_clock
from ...errors import BackendUnavailable, LockError
from ...findings import LEVELS, Finding, Findings
from ...model import Granted, Label, new_owner
from .._sync.contract import Terms, Ticket
from ..measures import SAMPLES, TRIAL_TTL, judge_round_trips, slow_trip
from ..urls import Target, merge_options
from ._sync.backend import HttpBackend
from .address import OPTIONS, Address, address_of
from .problems import detail_of, error_of
from .wire.failures import Failure
from .wire.http1 import Answer
from .wire.threads import Wire

EACH_LIMIT = 2.0
"""Seconds that one service has to answer a question."""
TRIAL = "holdfast-doctor:"
"""The beginning of the name of the lock that is tried out; in the namespace, since a service has none
but those that it was started with."""
LONGEST_TEXT = 500


def examine(target: Target, namespace: str, options: dict[str, Any], deadline: float) -> Findings:
    """Returns the findings about the services that a URL names."""
    address = address_of(target, merge_options(target, options, OPTIONS))
    findings = Findings()
    reached = _judge_reach(findings, address, deadline)
    if not reached:
        return findings
    _judge_privacy(findings, target, address)
    if _judge_trial(findings, address, reached, namespace, deadline):
        _pass_on(findings, address, reached[0], namespace, deadline)
    return findings


def _limit(deadline: float) -> float:
    return min(deadline, system_clock().now() + EACH_LIMIT)


def _only(address: Address, endpoint: str) -> Address:
    return address._replace(endpoints=(endpoint,))


def _judge_reach(findings: Findings, address: Address, deadline: float) -> list[str]:
    """Adds which services answer, and how quickly; returns those that are ready."""
    ready: list[str] = []
    failures: list[Failure] = []
    trips: list[float] = []
    for endpoint in address.endpoints:
        wire = Wire(_only(address, endpoint))
        try:
            answer = wire.call("GET", "/readyz", None, _limit(deadline))
            for _ in range(SAMPLES):
                began = time.monotonic()
                wire.call("GET", "/healthz", None, _limit(deadline))
                trips.append(time.monotonic() - began)
        except Failure as failure:
            failures.append(failure)
            continue
        finally:
            wire.close()
        if answer.status == 200:
            ready.append(endpoint)
            findings.ok("ready", "it answers, and so does its store", server=endpoint)
        else:
            findings.wrong(
                "ready",
                f"it is not ready: {_words(answer)}",
                "it answers requests for locks with an error",
                "see its log, and `holdfast doctor` of the store behind it",
                server=endpoint,
            )
    if len(failures) == len(address.endpoints):
        raise failures[0].in_words()
    for one in failures:
        findings.warning(
            "reachable",
            one.text,
            "others answer in its place, until the last of them is gone, too",
            "start it again, or take it out of the URL",
            server=one.endpoint,
        )
    if len(trips) > 1:
        judge_round_trips(findings, slow_trip(trips))
    return ready


def _judge_privacy(findings: Findings, target: Target, address: Address) -> None:
    """Adds whether others on the network can read along."""
    if target.scheme == "https":
        findings.ok("tls", "requests are encrypted, and the service has shown its certificate")
        return
    beyond = [place.host for place in address.places.values() if not _is_loopback(place.host)]
    if beyond:
        findings.warning(
            "tls",
            f"requests to {beyond[0]} are not encrypted",
            "whoever listens on the way reads our token and our owner ids, and can release our locks",
            "give the service a certificate, and write https:// in the URL",
        )
    else:
        findings.ok("tls", "requests stay on this machine, so they need no encryption")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _judge_trial(
    findings: Findings, address: Address, ready: list[str], namespace: str, deadline: float
) -> bool:
    """Takes a lock through one service and looks for it through the others; returns if that went."""
    name = TRIAL + os.urandom(6).hex()
    terms = Terms(name, TRIAL_TTL, Label("", 0, "holdfast doctor"))
    ticket = Ticket(terms, new_owner(), False)
    backends = [HttpBackend(_only(address, endpoint), namespace) for endpoint in ready]
    opened: list[HttpBackend] = []
    try:
        for backend in backends:
            backend.open(deadline)
            opened.append(backend)
        if not isinstance(backends[0].acquire(ticket, deadline), Granted):
            raise BackendUnavailable("a lock that nobody holds was not granted")
        try:
            for endpoint, backend in zip(ready[1:], backends[1:], strict=True):
                _judge_sameness(findings, backend, ready[0], endpoint, ticket, deadline)
        finally:
            backends[0].release(name, ticket.owner, deadline)
    except LockError as error:
        findings.wrong(
            "steps",
            f"a lock cannot be taken: {error}",
            "every step of a lock is a request to the service",
            "see the words of the service; a token needs the role `hold` for the names that you use, "
            f"and for {TRIAL}… to be tried out",
        )
        return False
    finally:
        for backend in opened:
            backend.close()
    findings.ok("steps", "we may take locks: one was taken and given back")
    return True


def _judge_sameness(
    findings: Findings,
    backend: HttpBackend,
    first: str,
    endpoint: str,
    ticket: Ticket,
    deadline: float,
) -> None:
    state = backend.inspect(ticket.name, deadline)
    if any(one.owner == ticket.owner for one in state.holders):
        findings.ok("same-store", f"it has the same store as {first}", server=endpoint)
        return
    findings.wrong(
        "same-store",
        f"it does not know of a lock that was taken at {first}",
        "two clients that reach different services would hold the same lock at the same time",
        "start all services of one URL with the same store and namespace",
        server=endpoint,
    )


def _pass_on(
    findings: Findings, address: Address, endpoint: str, namespace: str, deadline: float
) -> None:
    """Adds what the service's own doctor finds at its store."""
    from urllib.parse import quote  # slow to import, and rarely needed

    wire = Wire(_only(address, endpoint))
    try:
        path = f"/v1/doctor?namespace={quote(namespace, safe='')}"
        answer = wire.call("GET", path, None, deadline)
        if answer.status != 200:
            raise error_of(answer, _data(answer))
        found = [_finding(one) for one in _data(answer)["findings"]]
    except (Failure, LockError, KeyError, TypeError, ValueError) as error:
        said = (
            str(error) if isinstance(error, Failure | LockError) else "its answer has no findings"
        )
        findings.note(
            "store",
            f"the service does not tell how its store stands: {said}"[:LONGEST_TEXT],
            "its guarantees rest on the settings of that store",
            "run `holdfast doctor` with the URL of the store itself, or with a token for all names",
        )
        return
    finally:
        wire.close()
    findings.extend(found)


def _data(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def _words(answer: Answer) -> str:
    return detail_of(_data(answer)) or f"it answered {answer.status}"


def _finding(data: Any) -> Finding:
    """Returns a finding that a service told; raises `ValueError` if it is none."""
    texts = {name: data[name] for name in Finding._fields}
    if texts["level"] not in LEVELS or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("this is no finding")
    plain = {
        name: "".join(sign if sign.isprintable() else "?" for sign in text[:LONGEST_TEXT])
        for name, text in texts.items()
    }
    return Finding(**plain)
