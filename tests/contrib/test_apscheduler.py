"""APScheduler: of several schedulers one fires, in several processes; the one that fires is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from apscheduler.events import EVENT_JOB_ERROR
from apscheduler.executors.pool import ThreadPoolExecutor

import holdfast
from holdfast.contrib.apscheduler import (
    LeaderAsyncIOScheduler,
    LeaderBackgroundScheduler,
    current_term,
)

from .programs import LIMIT, program, said_without, until

numbers = count()


@pytest.fixture
def locks() -> Iterator[holdfast.Locks]:
    with holdfast.connect(f"memory://apscheduler-{next(numbers)}") as manager:
        yield manager


def scheduler_of(locks: holdfast.Locks, job: Any, kind: Any = LeaderBackgroundScheduler) -> Any:
    scheduler = kind(url=locks.url, election="chief")
    scheduler.add_job(job, "interval", seconds=0.02, max_instances=1)
    return scheduler


def test_one_of_two_fires_and_the_other_takes_over_at_once(locks: holdfast.Locks) -> None:
    fired = [0, 0]

    def job(number: int) -> None:
        fired[number] += 1

    first = scheduler_of(locks, lambda: job(0))
    second = scheduler_of(locks, lambda: job(1))
    first.start()
    until(lambda: fired[0])
    second.start()
    before = fired[0]
    until(lambda: fired[0] > before + 3)
    assert (first.leads, second.leads, fired[1]) == (True, False, 0)
    token = first.term.token
    first.shutdown()
    until(lambda: fired[1])
    assert second.term.token > token
    second.shutdown()
    assert locks.election("chief").leader() is None


def test_a_scheduler_that_lost_its_lead_fires_nothing_until_it_leads_again(
    locks: holdfast.Locks,
) -> None:
    fired = Event()
    scheduler = scheduler_of(locks, fired.set)
    scheduler.start()
    assert fired.wait(LIMIT)
    lost = scheduler.term
    terms: list[holdfast.Term] = []
    rival = Thread(target=lambda: terms.append(locks.election("chief").campaign()))
    rival.start()
    until(lambda: locks.inspect("chief").waiters)
    locks.force_release("chief")
    rival.join()
    assert lost.wait_lost(LIMIT)
    assert not scheduler.leads
    assert scheduler._process_jobs() is None
    fired.clear()
    terms[0].release()
    assert fired.wait(LIMIT)
    assert scheduler.term.token > terms[0].token
    scheduler.shutdown()


def test_jobs_that_run_at_the_end_keep_the_lead(locks: holdfast.Locks) -> None:
    runs, end = Event(), Event()

    def job() -> None:
        runs.set()
        end.wait(LIMIT)

    scheduler = scheduler_of(locks, job)
    scheduler.start()
    assert runs.wait(LIMIT)
    scheduler.shutdown(wait=False)
    assert locks.election("chief").leader() is not None
    end.set()
    until(lambda: locks.election("chief").leader() is None)


def test_a_job_that_ended_while_it_was_submitted_does_not_keep_the_lead(
    locks: holdfast.Locks,
) -> None:
    fired = Event()
    scheduler = scheduler_of(locks, fired.set)
    scheduler.start()
    assert fired.wait(LIMIT)
    scheduler._executors["default"]._instances["quick"] = 0  # as APScheduler leaves it
    scheduler.shutdown()
    assert locks.election("chief").leader() is None


def test_a_job_keeps_the_term_in_which_it_was_fired(locks: holdfast.Locks) -> None:
    """Its scheduler loses the lead and leads again: the job is still of the old term."""
    began, go_on = Event(), Event()
    seen: list[Any] = []

    def job() -> None:
        seen.append(current_term())
        began.set()
        go_on.wait(LIMIT)
        seen.append(current_term())
        try:
            current_term().ensure()
        except holdfast.LeaseLost as error:
            seen.append(error)

    scheduler = LeaderBackgroundScheduler(url=locks.url, election="chief")
    scheduler.add_job(job, "date", misfire_grace_time=None)
    scheduler.start()
    assert began.wait(LIMIT)
    first = seen[0]
    locks.force_release("chief")
    until(lambda: scheduler.term is not None and scheduler.term.token > first.token)
    go_on.set()
    scheduler.shutdown()
    assert seen[1] is first
    assert isinstance(seen[2], holdfast.LeaseLost)
    with pytest.raises(holdfast.ConfigError, match="is for jobs"):
        current_term()


def test_a_job_that_waits_for_a_thread_does_not_begin_in_a_lost_term(
    locks: holdfast.Locks,
) -> None:
    began, go_on = Event(), Event()
    ran: list[str] = []
    refused: list[Any] = []

    def long() -> None:
        began.set()
        go_on.wait(LIMIT)

    scheduler = LeaderBackgroundScheduler(
        url=locks.url, election="chief", executors={"default": ThreadPoolExecutor(1)}
    )
    scheduler.add_listener(refused.append, EVENT_JOB_ERROR)
    scheduler.add_job(long, "date", misfire_grace_time=None)
    scheduler.start()
    assert began.wait(LIMIT)
    scheduler.add_job(lambda: ran.append("short"), "date", misfire_grace_time=None)
    until(scheduler._executors["default"]._pool._work_queue.qsize)
    first = scheduler.term
    assert first is not None
    locks.force_release("chief")
    assert first.wait_lost(LIMIT)
    go_on.set()
    until(lambda: refused)
    assert isinstance(refused[0].exception, holdfast.LeaseLost)
    assert ran == []
    scheduler.shutdown()


FORKS = """
import os, sys, warnings
from holdfast.contrib.apscheduler import LeaderBackgroundScheduler
from contrib.programs import until
warnings.simplefilter("ignore")
scheduler = LeaderBackgroundScheduler(url=sys.argv[1], election="chief")
scheduler.start()
until(lambda: scheduler.leads)
term = scheduler.term
if (child := os.fork()) == 0:
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
term.renew()
assert scheduler.term is term
scheduler.shutdown()
print("still led")
"""


def test_a_child_that_ends_does_not_resign_for_its_parent(tmp_path: Path) -> None:
    with program("-c", FORKS, f"sqlite://{tmp_path}/locks.db") as running:
        running.says("still led")


def test_a_scheduler_that_is_started_again_leads_though_the_last_candidate_is_slow_to_leave(
    locks: holdfast.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, end, go_on = Event(), Event(), Event()

    def job() -> None:
        runs.set()
        end.wait(LIMIT)

    scheduler = scheduler_of(locks, job)
    wait_lost = holdfast.Term.wait_lost
    first: list[Any] = []

    def slow(term: Any, *args: Any) -> bool:
        if not first:
            first.append(term)
        lost = wait_lost(term, *args)
        if term is first[0]:
            go_on.wait(LIMIT)
        return lost

    monkeypatch.setattr(holdfast.Term, "wait_lost", slow)
    scheduler.start()
    assert runs.wait(LIMIT)
    last = scheduler._candidate
    scheduler.shutdown(wait=False)
    scheduler.start()
    end.set()
    until(lambda: scheduler.leads and scheduler.term is not first[0])
    go_on.set()
    last.join()
    assert scheduler.leads
    scheduler.shutdown()


FIRED_ELSEWHERE = """
import os, sys
from apscheduler.executors.pool import ProcessPoolExecutor
from holdfast.contrib.apscheduler import LeaderBackgroundScheduler
from contrib.programs import until
if __name__ == "__main__":
    folder = sys.argv[2]
    pool = ProcessPoolExecutor(1)
    scheduler = LeaderBackgroundScheduler(url=sys.argv[1], executors={"default": pool})
    scheduler.add_job("os:mkdir", "date", args=[folder], misfire_grace_time=None)
    scheduler.start()
    until(lambda: os.path.isdir(folder))
    scheduler.shutdown()
    print("fired elsewhere")
"""


def test_jobs_may_run_in_other_processes(tmp_path: Path) -> None:
    store = f"sqlite://{tmp_path}/locks.db"
    with program("-c", FIRED_ELSEWHERE, store, str(tmp_path / "made")) as running:
        running.says("fired elsewhere")


def test_an_executor_can_be_removed(locks: holdfast.Locks) -> None:
    scheduler = scheduler_of(locks, print)
    scheduler.add_executor(ThreadPoolExecutor(1), "second")
    scheduler.start(paused=True)
    scheduler.remove_executor("second")
    scheduler.shutdown()


async def test_asyncio(locks: holdfast.Locks) -> None:
    fired = asyncio.Event()

    async def job() -> None:
        fired.set()

    scheduler = scheduler_of(locks, job, LeaderAsyncIOScheduler)
    scheduler.start()
    await fired.wait()
    assert scheduler.leads
    scheduler.shutdown()
    await asyncio.to_thread(until, lambda: locks.election("chief").leader() is None)


@pytest.mark.parametrize("wrong", [{"url": "nothing"}, {"election": ""}, {"ttl": 0}])
def test_bad_input_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(holdfast.ConfigError):
        LeaderBackgroundScheduler(**{"url": "memory://", **wrong})


def test_of_several_processes_one_fires_and_one_may_be_killed(tmp_path: Path) -> None:
    file = tmp_path / "fired"
    words = "-m", "contrib.apscheduler_site", f"sqlite://{tmp_path}/locks.db", str(file)

    def notes() -> list[tuple[int, int]]:
        """Returns the process and the token of each firing, in their order."""
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(one.split()[0]), int(one.split()[1])) for one in lines]

    with program(*words) as one, program(*words) as two, program(*words) as three:
        for running in (one, two, three):
            running.says("standing by")
        until(lambda: len(notes()) > 5)
        leader = notes()[0][0]
        next(run for run in (one, two, three) if run.process.pid == leader).kill()
        killed_after = len(notes())
        until(lambda: len(notes()) > killed_after + 5)
        seen = notes()  # before the programs are ended, one after the other
    tokens = [token for _, token in seen]
    assert tokens == sorted(tokens)
    assert len(set(seen)) == len(set(tokens)) == 2  # each term is of one process
    assert seen[-1][0] != leader


def test_without_apscheduler_it_says_what_to_install() -> None:
    said = said_without("apscheduler", "holdfast.contrib.apscheduler")
    assert "pip install 'holdfast-locks[apscheduler]'" in said
