"""APScheduler: schedulers whose store goes away, and that are shut down in every state."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from holdfast.chaos.servers.redis import RedisServer
from holdfast.contrib import apscheduler as extra
from holdfast.contrib.apscheduler import LeaderBackgroundScheduler

from .programs import LIMIT, until

TTL = 2.0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    one = RedisServer()
    yield one
    if one.running:
        one.resume()
    one.stop()


class Fires:
    """A scheduler with a job that counts, and the number of times that it was fired."""

    def __init__(self, server: RedisServer) -> None:
        self.number = 0
        self.scheduler: Any = LeaderBackgroundScheduler(url=server.url, election="chief", ttl=TTL)
        self.scheduler.add_job(self.fire, "interval", seconds=0.02, max_instances=1)

    def fire(self) -> None:
        self.number += 1

    def fires(self) -> None:
        """Waits until it fires again."""
        before = self.number
        until(lambda: self.number > before)


def test_a_store_that_was_killed_stops_the_jobs_until_it_is_back(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(extra, "LONGEST_PAUSE", 0.05)
    one = Fires(server)
    one.scheduler.start()
    one.fires()
    token = one.scheduler.term.token
    server.kill()
    until(lambda: not one.scheduler.leads)
    fired = one.number
    until(lambda: not one.scheduler._jobs_run())
    assert one.number <= fired + 1  # the one that had begun
    server.start()
    one.fires()
    assert one.scheduler.term.token > token
    one.scheduler.shutdown()


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize(
    "state", ["leads", "paused", "stands by", "store is silent", "store is dead"]
)
def test_a_scheduler_can_be_shut_down_in_every_state(
    server: RedisServer, state: str, wait: bool
) -> None:
    leader, one = Fires(server), Fires(server)
    if state == "stands by":
        leader.scheduler.start()
        leader.fires()
    one.scheduler.start(paused=state == "paused")
    if state in ("leads", "store is silent", "store is dead"):
        one.fires()
    elif state == "paused":
        until(lambda: one.scheduler.leads)
    if state == "store is silent":
        server.pause()
    elif state == "store is dead":
        server.kill()
    candidate = one.scheduler._candidate
    one.scheduler.shutdown(wait=wait)
    candidate.join(LIMIT)
    assert not candidate.is_alive()
    assert not one.scheduler.leads
    fired = one.number
    if state == "stands by":
        leader.fires()
        leader.scheduler.shutdown()
    elif state not in ("store is silent", "store is dead"):
        leader.scheduler.start()  # nobody stands in its way
        leader.fires()
        leader.scheduler.shutdown()
    assert one.number == fired


def test_a_shutdown_that_does_not_wait_leaves_the_lead_to_the_job_that_runs(
    server: RedisServer,
) -> None:
    runs, end = Event(), Event()

    def job() -> None:
        runs.set()
        end.wait(LIMIT)

    one: Any = LeaderBackgroundScheduler(url=server.url, election="chief", ttl=TTL)
    one.add_job(job)
    one.start()
    assert runs.wait(LIMIT)
    other = Fires(server)
    other.scheduler.start()
    term, candidate = one.term, one._candidate
    one.shutdown(wait=False)
    assert term.held
    assert not other.scheduler.leads
    end.set()
    other.fires()
    assert other.scheduler.term.token > term.token
    candidate.join(LIMIT)
    other.scheduler.shutdown()
