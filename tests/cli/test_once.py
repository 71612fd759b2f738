"""`holdfast once`: at most once in each period, whoever asks."""

from __future__ import annotations

import json
import os
import signal

import pytest

from cli.stage import Stage, ended, eventually


def test_what_was_done_is_not_done_again(stage: Stage) -> None:
    words = ("once", "report", "--every", "1h", "--")
    first = stage.run(*words, "sh", "-c", 'echo "$HOLDFAST_LOCK $HOLDFAST_TOKEN"')
    assert first.status == 0
    name, token = first.out.split()
    assert name == "report"
    assert int(token) > 0
    second = stage.run(*words, "echo", "again")
    assert (second.status, second.out, second.err) == (75, "", "")  # not a word, for cron
    assert stage.run(*words[:-1], "--busy-ok", "--", "echo", "again").status == 0
    (holder,) = stage.locks.inspect("report").holders
    assert 3000 < holder.remaining <= 3600
    assert stage.locks.force_release("report")
    assert stage.run(*words, "true").status == 0


@pytest.mark.parametrize("failing", ["exit 3", "kill -TERM $$", "exit 75"])
def test_what_failed_may_be_tried_again(stage: Stage, failing: str) -> None:
    words = ("once", "report", "--cron", "@daily", "--")
    assert stage.run(*words, "sh", "-c", failing).status not in (0, 76)
    assert stage.run(*words, "true").status == 0
    assert stage.run(*words, "true").status == 75


def test_what_failed_may_be_kept_for_a_while(stage: Stage) -> None:
    words = ("once", "report", "--every", "1h", "--at-least", "30m", "--")
    assert stage.run(*words, "false").status == 1
    assert stage.run(*words, "true").status == 75


def test_a_command_that_cannot_be_started_keeps_nothing(stage: Stage) -> None:
    assert stage.run("once", "report", "--every", "1h", "--", "./not-there").status == 127
    assert stage.run("once", "report", "--every", "1h", "--", "true").status == 0


def test_a_worker_that_died_is_made_up_for(stage: Stage) -> None:
    process = stage.start(
        "once",
        "report",
        "--every",
        "1h",
        "--ttl",
        "20s",
        "--",
        "sh",
        "-c",
        "echo $$ > child.pid; sleep 60",
    )
    child = stage.pid()
    process.kill()
    process.wait()
    # Its command runs on, so nobody else does it meanwhile.
    assert stage.run("once", "report", "--every", "1h", "--", "true").status == 75
    os.kill(child, signal.SIGKILL)
    eventually(lambda: stage.run("once", "report", "--every", "1h", "--", "true").status == 0)


def test_a_signal_ends_the_command_which_has_failed_then(stage: Stage) -> None:
    process = stage.start(
        "once", "report", "--every", "1h", "--", "sh", "-c", "echo $$ > child.pid; sleep 60"
    )
    stage.pid()
    process.send_signal(signal.SIGTERM)
    assert ended(process).status == 128 + signal.SIGTERM
    assert not stage.locks.inspect("report").held


def test_it_may_not_take_too_long(stage: Stage) -> None:
    answer = stage.run("once", "report", "--every", "1h", "--at-most", "500ms", "--", "sleep", "60")
    assert answer.status == 128 + signal.SIGTERM
    assert "--at-most" in answer.err
    assert not stage.locks.inspect("report").held


def test_it_may_take_so_long(stage: Stage) -> None:
    """Also where that is less than the grace, and less than a third of the TTL."""
    words = (
        "once",
        "report",
        "--every",
        "1h",
        "--at-most",
        "4s",
        "--",
        "sh",
        "-c",
        "sleep 1; echo did",
    )
    assert stage.run(*words).out == "did\n"
    assert stage.run(*words).status == 75


def test_what_happens_is_told_to_programs(stage: Stage) -> None:
    words = ("once", "report", "--every", "1h", "--status-fd", "2", "--", "true")
    told = [json.loads(line)["event"] for line in stage.run(*words).err.splitlines()]
    assert told == ["acquired", "started", "exited", "released"]
    assert json.loads(stage.run(*words).err)["event"] == "busy"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ((), "how often"),
        (("--every", "1d", "--cron", "@daily"), "not both"),
        (("--every", "soon"), "length of time"),
        (("--every", "0s"), "more than 0"),
        (("--cron", "sometimes"), "five fields"),
        (("--every", "1d", "--at-most", "0s"), "--at-most"),
        (("--cron", "@daily", "--timezone", "Mars/Olympus"), "timezone"),
        (("--every", "1d", "--timezone", "UTC"), "--cron"),
    ],
)
def test_bad_words_are_refused(stage: Stage, words: tuple[str, ...], hint: str) -> None:
    answer = stage.run("once", "report", *words, "--", "true")
    assert answer.status == 2
    assert hint in answer.err
    assert answer.err.count("\n") == 1
