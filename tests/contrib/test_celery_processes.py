"""Celery: real workers and beats in several processes, over a real Redis; some are killed."""

from __future__ import annotations

import json
import os
import signal
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count as numbers
from pathlib import Path
from time import time
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded

import holdfast
from holdfast.contrib.celery import BeatScheduler
from stores import redis_server

from .programs import LIMIT, Program, until

names = numbers()


class Site:
    """The application of `celery_site`, as its clients see it."""

    def __init__(self, folder: Path) -> None:
        self.redis = redis_server()
        self.folder = folder
        self.name = f"celery-{os.getpid()}-{next(names)}"
        self.environment = {
            "SITE_BROKER": self.redis.url,
            "SITE_STORE": self.redis.url,
            "SITE_NAME": self.name,
            "SITE_FOLDER": str(folder),
        }
        self.client = Celery("client", broker=self.redis.url, backend=self.redis.url)
        self.client.conf.task_default_queue = self.name
        self.stack = ExitStack()

    def start(self, *words: str) -> Program:
        command = "-m", "celery", "-A", "contrib.celery_site", *words
        one = Program(*command, folder=self.folder, **self.environment)
        self.stack.callback(one.kill)
        return one

    def worker(self, *words: str) -> Program:
        """Returns a worker that is ready."""
        name = f"{next(names)}@{self.name}"
        common = "--loglevel=INFO", "--concurrency=2", "-n", name, "--without-mingle"
        one = self.start("worker", *common, "--without-gossip", *words)
        one.says("ready.")
        return one

    def beat(self) -> Program:
        number = next(names)
        own = f"--schedule=beat-{number}", f"--pidfile=beat-{number}.pid"
        scheduler = f"--scheduler={BeatScheduler.__module__.rpartition('.')[0]}.BeatScheduler"
        return self.start("beat", "--loglevel=INFO", scheduler, *own)

    def send(self, task: str, *args: Any, **kwargs: Any) -> Any:
        return self.client.send_task(task, args, kwargs)

    def queued(self, what: str) -> int:
        """Returns how many tasks with this argument are in the queue, which no worker reads."""
        bodies = [json.loads(one)["body"] for one in self.redis("LRANGE", self.name, 0, -1)]
        return sum(json.loads(b64decode(body))[0] == [what] for body in bodies)

    def end(self) -> None:
        self.stack.close()
        self.client.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    one = Site(tmp_path)
    yield one
    one.end()


def test_workers_take_turns_and_run_once(site: Site) -> None:
    site.worker()
    site.worker("--pool=threads")
    sent = [site.send("count", 7) for _ in range(20)]
    once = [site.send("report", "monday") for _ in range(6)]
    counted = sorted(one.get(timeout=LIMIT) for one in sent)
    assert [number for number, _ in counted] == list(range(1, 21))
    tokens = [token for _, token in counted]
    assert tokens == sorted(set(tokens))
    assert sum(one.get(timeout=LIMIT) is not None for one in once) == 1

    with pytest.raises(KeyError):
        site.send("report", "tuesday", fail=True).get(timeout=LIMIT)
    assert site.send("report", "tuesday").get(timeout=LIMIT) is not None


def test_a_killed_worker_leaves_its_lock_to_another(site: Site) -> None:
    doomed = site.worker()
    site.send("stuck")
    mark = site.folder / "stuck"
    until(lambda: mark.exists() and mark.read_text())
    doomed.kill()
    site.worker()
    waiting = site.send("stuck")  # is sent again until the lease of the killed one has ended
    assert waiting.get(timeout=LIMIT) > int(mark.read_text())


def test_of_several_beats_one_sends_each_entry_and_one_may_die(site: Site) -> None:
    beats = [site.beat() for _ in range(3)]
    until(lambda: any(said(one, "Sending due task hourly") for one in beats))
    (sender,) = (one for one in beats if said(one, "Sending due task hourly"))
    others = [one for one in beats if one is not sender]
    for one in others:
        one.says("another one has sent hourly")
    until(lambda: site.queued("often"))
    sender.kill()
    before = site.queued("often")
    until(lambda: site.queued("often") >= before + 2)
    others[0].kill()
    before = site.queued("often")
    until(lambda: site.queued("often") >= before + 2)
    assert site.queued("hourly") == 1


def test_a_task_that_is_acknowledged_late_is_run_again_under_a_higher_token(site: Site) -> None:
    """Its process is killed in the middle: the broker delivers the message anew."""
    site.worker()
    result = site.send("late")
    mark = site.folder / "late"
    until(mark.exists)
    pid, token = map(int, mark.read_text().split())
    os.kill(pid, signal.SIGKILL)
    assert result.get(timeout=LIMIT) > token


def test_a_task_that_celery_tries_again_has_a_lease_for_each_try(site: Site) -> None:
    site.worker()
    tokens = site.send("tried").get(timeout=LIMIT)
    assert len(tokens) == 3
    assert tokens == sorted(set(tokens))


def test_a_worker_that_is_told_to_stop_lets_its_task_end_under_its_lock(site: Site) -> None:
    worker = site.worker()
    result = site.send("long")
    until((site.folder / "long").exists)
    os.kill(worker.process.pid, signal.SIGTERM)
    worker.says("Warm shutdown")
    with holdfast.connect(site.redis.url, namespace=site.name) as locks:
        (before,) = locks.inspect("long").holders
        # For longer than its TTL of 3 s, so it is still renewed.
        until(lambda: locks.inspect("long").holders[0].since + 3.0 < time())
        (site.folder / "end").touch()
        assert result.get(timeout=LIMIT) == before.token
        assert worker.process.wait(LIMIT) == 0
        assert locks.inspect("long").holders == ()


def test_a_task_that_celery_ends_for_its_time_limit_frees_its_lock(site: Site) -> None:
    site.worker()
    with pytest.raises(SoftTimeLimitExceeded):
        site.send("limited", hang=True).get(timeout=LIMIT)
    assert site.send("limited", hang=False).get(timeout=LIMIT) > 0


def test_a_beat_that_is_started_again_sends_nothing_twice(site: Site) -> None:
    first = site.beat()
    first.says("Sending due task hourly")
    until(lambda: site.queued("hourly"))
    os.kill(first.process.pid, signal.SIGTERM)
    first.process.wait(LIMIT)
    second = site.beat()  # with no memory of its own
    second.says("another one has sent hourly")
    before = site.queued("often")
    until(lambda: site.queued("often") >= before + 2)
    assert site.queued("hourly") == 1


def said(one: Program, words: str) -> bool:
    return any(words in line for line in one.seen)
