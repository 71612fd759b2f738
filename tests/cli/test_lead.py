"""`holdfast lead`: a command while we lead, and standing by otherwise."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from cli.screen import Screen
from cli.stage import Stage, ended, eventually, lives
from holdfast.cli import statuses

NOTE = "echo $$ > child.pid; echo $HOLDFAST_TOKEN >> terms; exec sleep 60"


def terms(stage: Stage) -> list[int]:
    path = stage.folder / "terms"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_the_status_of_a_command_that_ends_is_ours(stage: Stage) -> None:
    assert stage.run("lead", "boss", "--", "sh", "-c", "exit 3").status == 3
    assert stage.run("lead", "boss", "--", "true").status == 0
    assert not stage.locks.inspect("boss").held


def test_one_leads_and_the_next_stands_by(stage: Stage) -> None:
    first = stage.start("lead", "boss", "--value", "one", "--", "sh", "-c", NOTE)
    eventually(lambda: len(terms(stage)) == 1)
    leader = stage.locks.election("boss").leader()
    assert leader is not None
    assert leader.kind == "election"
    assert leader.holders[0].label.text == "one"
    second = stage.start("lead", "boss", "--value", "two", "--", "sh", "-c", NOTE)
    eventually(lambda: stage.locks.inspect("boss").waiters)
    first.send_signal(signal.SIGTERM)
    assert ended(first).status == 128 + signal.SIGTERM
    eventually(lambda: len(terms(stage)) == 2)
    assert terms(stage)[1] > terms(stage)[0]
    leader = stage.locks.election("boss").leader()
    assert leader is not None
    assert leader.holders[0].label.text == "two"
    second.send_signal(signal.SIGINT)
    assert ended(second).status == 128 + signal.SIGINT
    assert stage.locks.election("boss").leader() is None


def test_a_term_that_is_lost_ends_the_command_and_the_next_begins_it_anew(stage: Stage) -> None:
    process = stage.start("lead", "boss", "--ttl", "20s", "--", "sh", "-c", NOTE)
    first = stage.pid()
    assert stage.locks.force_release("boss")
    process.send_signal(signal.SIGCONT)  # it looks at its lease, rather than after seven seconds
    eventually(lambda: len(terms(stage)) == 2)
    assert not lives(first)
    assert terms(stage)[1] > terms(stage)[0]
    process.send_signal(signal.SIGTERM)
    answer = ended(process)
    assert answer.status == 128 + signal.SIGTERM
    assert "standing by for the next term of 'boss'" in answer.err


LOST = """
import sys, threading
import holdfast
from holdfast.cli.__main__ import main

times = [{times}]
proper = holdfast.Term.{verb}

def lose(term, *words):
    waiting = threading.current_thread() is not threading.main_thread()
    if times[0] and waiting is {waiting}:
        times[0] -= 1
        raise holdfast.LeaseLost("it is over", name=term.name, reason="for a test")
    return proper(term, *words)

holdfast.Term.{verb} = lose
sys.exit(main())
"""
"""`holdfast`, which finds its first terms lost by one of the verbs of a lease; in the thread that
waits for it, or in the main one."""


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("verb", "waiting"), [("renew", True), ("ensure", False)])
def test_a_term_that_is_lost_before_its_command_began_is_not_the_end(
    stage: Stage, verb: str, waiting: bool, times: int
) -> None:
    program = LOST.format(verb=verb, waiting=waiting, times=times)
    words = ["lead", "boss", "--status-fd", "1", "--", "touch", "led"]
    answer = stage.run(*words, program=[sys.executable, "-c", program])
    assert answer.status == 0, answer
    assert (stage.folder / "led").exists()
    assert answer.err.count("the command was not run: it is over") == times
    assert answer.err.count("standing by for the next term of 'boss'") == times
    events = Counter(json.loads(line)["event"] for line in answer.out.splitlines())
    assert (events["lost"], events["started"]) == (times, 1)
    eventually(lambda: stage.free("boss"))


def test_each_term_finds_the_terminal_as_the_first_one_did(stage: Stage) -> None:
    script = "grep SigIgn /proc/self/status >> ignored; " + NOTE
    screen = Screen(
        stage, sys.executable, "-m", "holdfast", "lead", "boss", "--", "sh", "-c", script
    )
    try:
        leader = screen.process
        for number in range(1, 4):
            eventually(lambda number=number: len(terms(stage)) == number)  # type: ignore[misc]
            assert len(terminals(leader.pid)) <= 1
            assert stage.locks.force_release("boss")
            leader.send_signal(signal.SIGCONT)
        eventually(lambda: len(terms(stage)) == 4)
        assert len(terminals(leader.pid)) <= 1
        ignored = (stage.folder / "ignored").read_text().splitlines()
        assert len(ignored) == 4
        assert len(set(ignored)) == 1
    finally:
        screen.close()


def terminals(pid: int) -> list[str]:
    """Returns the descriptors by which that process has opened its controlling terminal."""
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(file) == "/dev/tty":
                found.append(file.name)
        except FileNotFoundError:
            continue  # closed meanwhile
    return found


DEAF = f"trap 'echo >> told' TERM; {NOTE.rpartition(';')[0]}; while :; do sleep 0.1; done"


def test_one_that_was_told_to_end_begins_no_other_term(stage: Stage) -> None:
    process = stage.start("lead", "boss", "--grace", "100ms", "--", "sh", "-c", DEAF)
    first = stage.pid()
    process.send_signal(signal.SIGTERM)
    assert stage.wrote("told")
    assert stage.locks.force_release("boss")
    process.send_signal(signal.SIGCONT)  # it looks at its lease, rather than after ten seconds
    assert ended(process).status == statuses.LOST
    assert not lives(first)
    assert len(terms(stage)) == 1


def test_a_signal_while_the_command_is_ended_is_not_forgotten(stage: Stage) -> None:
    process = stage.start("lead", "boss", "--grace", "8s", "--", "sh", "-c", DEAF)
    first = stage.pid()
    assert stage.locks.force_release("boss")
    process.send_signal(signal.SIGCONT)
    assert stage.wrote("told")  # the term is lost, and the command has some seconds to end in
    process.send_signal(signal.SIGTERM)
    os.kill(first, signal.SIGKILL)
    # Which of the two it hears of first is the kernel's choice.
    assert ended(process).status in (statuses.LOST, 128 + signal.SIGTERM)
    assert len(terms(stage)) == 1


def test_one_who_stands_by_again_can_be_stopped(stage: Stage) -> None:
    process = stage.start("lead", "boss", "--", "sh", "-c", NOTE)
    stage.pid()
    assert catches_stops(process.pid)
    second = stage.start("lead", "boss", "--", "sleep", "60")
    eventually(lambda: stage.locks.inspect("boss").waiters)
    assert stage.locks.force_release("boss")
    process.send_signal(signal.SIGCONT)
    eventually(lambda: stage.locks.inspect("boss").waiters)  # the first one, behind the second
    eventually(lambda: not catches_stops(process.pid))
    for one in (process, second):
        one.send_signal(signal.SIGTERM)
        assert ended(one).status == 128 + signal.SIGTERM


def catches_stops(pid: int) -> bool:
    """Returns whether that process hears Ctrl-Z rather than being stopped by it."""
    with open(f"/proc/{pid}/status") as file:
        caught = next(line for line in file if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTSTP - 1) & 1)


def test_a_leader_that_was_killed_is_replaced(stage: Stage) -> None:
    leader = stage.start(
        "lead", "boss", "--ttl", "2s", "--", "sh", "-c", NOTE, start_new_session=True
    )
    child = stage.pid()
    stand_by = stage.start("lead", "boss", "--", "sh", "-c", NOTE)
    eventually(lambda: stage.locks.inspect("boss").waiters)
    leader.send_signal(signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    eventually(lambda: len(terms(stage)) == 2)
    stand_by.send_signal(signal.SIGTERM)
    ended(stand_by)


def test_a_signal_ends_one_who_stands_by(stage: Stage) -> None:
    term = stage.locks.election("boss").campaign()
    process = stage.start("lead", "boss", "--", "touch", "led")
    eventually(lambda: stage.locks.inspect("boss").waiters)
    process.send_signal(signal.SIGTERM)
    assert ended(process).status == 128 + signal.SIGTERM
    eventually(lambda: not stage.locks.inspect("boss").waiters)
    term.resign()
    assert not (stage.folder / "led").exists()


def test_a_store_that_cannot_be_reached_is_asked_again(stage: Stage) -> None:
    url = "redis://127.0.0.1:1/0"
    process = stage.start("--url", url, "lead", "boss", "--status-fd", "1", "--", "touch", "led")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "unreachable"
    assert json.loads(process.stdout.readline())["event"] == "unreachable"
    process.send_signal(signal.SIGTERM)
    answer = ended(process)
    assert answer.status == 128 + signal.SIGTERM
    assert "asking again" in answer.err


def test_a_command_that_is_not_there(stage: Stage) -> None:
    assert stage.run("lead", "boss", "--", "./not-there").status == 127
    assert not stage.locks.inspect("boss").held


def test_bad_words_are_refused(stage: Stage) -> None:
    for words in (("lead",), ("lead", "boss"), ("lead", "boss", "true"), ("lead", "boss", "--")):
        assert stage.run(*words).status == 2
    assert stage.run("lead", "boss", "--value", "\n", "--", "true").status == 2
