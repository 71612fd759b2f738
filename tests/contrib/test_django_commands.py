"""Django: management commands under a lock, in several processes; settings; a fence in `atomic()`.

Each runs in a process of its own, since the settings of Django are those of a whole process.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import holdfast
from stores import redis_server

from .programs import LIMIT, Program, said_without, until

Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Returns how to start a management command, which is killed at the end."""
    with ExitStack() as stack:

        def command(*words: str, store: str = "") -> Program:
            one = Program(
                "-m",
                "contrib.django_site",
                *words,
                SITE_FOLDER=str(tmp_path),
                SITE_STORE=store or f"sqlite://{tmp_path}/locks.db",
                HOLDFAST_URL="",
            )
            stack.callback(one.kill)
            return one

        yield command


def test_commands_take_turns(start: Start, tmp_path: Path) -> None:
    running = [start("count", "7", "--lock-wait", "100") for _ in range(4)]
    for one in running:
        one.says("counted")
        assert one.process.wait(LIMIT) == 0
    assert (tmp_path / "7").read_text() == "4"


def test_a_lock_that_is_held_and_one_whose_holder_was_killed(start: Start) -> None:
    first = start("stay")
    first.says("held command:__main__")
    second = start("stay")
    assert "command:__main__" in second.says("CommandError")
    assert second.process.wait(LIMIT) == 75
    third = start("stay", "--lock-wait", "forever")
    first.kill()
    third.says("held")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)]
)
def test_a_command_that_is_told_to_end_releases_its_lock(
    start: Start, number: int, status: int
) -> None:
    store = redis_server().url  # which does not notice that a process has died
    with holdfast.connect(store, namespace="site") as locks:
        held = start("stay", store=store)
        held.says("held")
        waits = start("count", "7", "--lock-wait", "forever", store=store)
        with locks.lock("counter:7") as lease:
            until(lambda: locks.inspect("counter:7").waiters)
            for one in (held, waits):
                one.process.send_signal(number)
            held.says("cleaned up")
            for one in (held, waits):
                assert one.process.wait(LIMIT) == status
            assert not locks.inspect("command:__main__").held
            assert not locks.inspect("counter:7").waiters
            lease.ensure()


def test_a_lock_that_is_lost_while_the_command_runs(start: Start, tmp_path: Path) -> None:
    command = start("stay")
    command.says("held")
    with holdfast.connect(f"sqlite://{tmp_path}/locks.db", namespace="site") as locks:
        locks.force_release("command:__main__")
        command.says("cleaned up")
        command.says("CommandError")
        assert command.process.wait(LIMIT) == 76


def test_a_lock_that_was_lost(start: Start) -> None:
    command = start("lose")
    command.says("CommandError")
    assert command.process.wait(LIMIT) == 76


def test_a_child_that_is_forked_while_a_thread_asks_for_the_manager(start: Start) -> None:
    command = start("fork")
    assert command.says("the child ended").split()[-1] == "0"
    assert command.process.wait(LIMIT) == 0


def test_settings_and_the_fence_in_a_transaction(start: Start, tmp_path: Path) -> None:
    command = start("check")
    command.says("StaleToken paid 1")
    command.says("AssertionError paid 1")
    command.says("nested paid 1")
    command.says("without autocommit paid 1")
    command.says("refused the setting HOLDFAST is a dict")
    command.says("refused the setting HOLDFAST is wrong: memory:// has no option 'names'")
    command.says("refused the setting HOLDFAST is wrong: ")
    command.says("refused the settings name no store")
    command.says("refused the settings name no store")
    command.says("named twice")
    command.says("name no store")
    command.says("counted 1")
    assert command.process.wait(LIMIT) == 0


def test_a_wait_that_makes_no_sense_is_refused(start: Start) -> None:
    command = start("stay", "--lock-wait", "long")
    command.says("invalid")
    assert command.process.wait(LIMIT) == 2


def test_without_django_it_says_what_to_install() -> None:
    said = said_without("django", "holdfast.contrib.django")
    assert "pip install 'holdfast-locks[django]'" in said
