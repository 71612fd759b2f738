"""An application of Celery's, for workers and beats in processes of their own.

The environment names its broker, its store, a name that keeps tests apart, and a folder.
"""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from celery import Celery

from holdfast.contrib.celery import LockedTask, OnceTask

FOLDER = Path(os.environ["SITE_FOLDER"])
app = Celery("site", broker=os.environ["SITE_BROKER"], backend=os.environ["SITE_BROKER"])
app.conf.update(
    holdfast_url=os.environ["SITE_STORE"],
    holdfast_namespace=os.environ["SITE_NAME"],
    task_default_queue=os.environ["SITE_NAME"],
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    beat_schedule={
        "hourly": {
            "task": "noted",
            "schedule": 3600.0,
            "last_run_at": datetime.now(UTC) - timedelta(hours=2),
            "args": ["hourly"],
        },
        "often": {"task": "noted", "schedule": 2.0, "args": ["often"]},
    },
    beat_max_loop_interval=1.0,
)


@app.task(base=LockedTask, bind=True, lock="counter:{number}", retry_in=0.05, name="count")
def count(self: Any, number: int) -> tuple[int, int]:
    """Adds one to a file, in a way that loses an addition if two do it at once."""
    file = FOLDER / str(number)
    before = int(file.read_text()) if file.exists() else 0
    time.sleep(0.005)
    file.write_text(str(before + 1))
    return before + 1, self.lease.token


@app.task(base=OnceTask, bind=True, once="report:{day}", once_period=3600.0, name="report")
def report(self: Any, day: str, fail: bool = False) -> int:
    if fail:
        raise KeyError(day)
    token: int = self.lease.token
    return token


@app.task(
    base=LockedTask, bind=True, lock="stuck", lock_options={"ttl": 3.0}, retry_in=0.2, name="stuck"
)
def stuck(self: Any) -> int:
    """Returns its token; the first time, it says so and goes on for ever."""
    token: int = self.lease.token
    mark = FOLDER / "stuck"
    if mark.exists():
        return token
    mark.write_text(str(token))
    while True:
        time.sleep(0.1)


@app.task(name="noted")
def noted(what: str) -> None:
    """Does nothing: what beats send is counted in the queue."""


@app.task(
    base=LockedTask,
    bind=True,
    lock="late",
    lock_options={"ttl": 3.0},
    retry_in=0.2,
    name="late",
    acks_late=True,
    reject_on_worker_lost=True,
)
def late(self: Any) -> int:
    """Returns its token; its first process notes its own id, for the test to kill it."""
    token: int = self.lease.token
    mark = FOLDER / "late"
    if mark.exists():
        return token
    draft = FOLDER / "late.new"
    draft.write_text(f"{os.getpid()} {token}")
    draft.rename(mark)
    while True:
        time.sleep(0.1)


@app.task(base=LockedTask, bind=True, lock="tried", name="tried", max_retries=2)
def tried(self: Any) -> list[int]:
    """Returns the tokens of its tries: it asks Celery for a further one, twice."""
    with (FOLDER / "tried").open("a") as file:
        file.write(f"{self.lease.token}\n")
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return [int(line) for line in (FOLDER / "tried").read_text().split()]


@app.task(base=LockedTask, bind=True, lock="long", lock_options={"ttl": 3.0}, name="long")
def long(self: Any) -> int:
    """Runs until the test lets it end, and is then still the holder."""
    (FOLDER / "long").touch()
    while not (FOLDER / "end").exists():
        time.sleep(0.05)
    self.lease.ensure()
    token: int = self.lease.token
    return token


@app.task(base=LockedTask, bind=True, lock="limited", name="limited", soft_time_limit=1)
def limited(self: Any, hang: bool) -> int:
    """Returns its token, or is ended by Celery's limit."""
    while hang:
        time.sleep(0.05)
    token: int = self.lease.token
    return token
