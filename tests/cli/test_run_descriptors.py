"""Descriptors: what the command inherits, and what `--status-fd` tells."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from cli.stage import Stage, ended, eventually

SHOW = """
import os
for fd in sorted(int(name) for name in os.listdir("/proc/self/fd")):
    try:
        print(fd, os.readlink(f"/proc/self/fd/{fd}"))
    except FileNotFoundError:
        pass
"""


def inherited(out: str) -> dict[int, str]:
    pairs = (line.split(" ", 1) for line in out.splitlines())
    return {int(number): target for number, target in pairs}


def events(stage: Stage, *words: str, **options: Any) -> tuple[int, list[dict[str, Any]]]:
    """The status and the events of a run."""
    read, write = os.pipe()
    with open(read) as reader:
        process = stage.start(
            "run", "x", "--status-fd", str(write), *words, pass_fds=[write], **options
        )
        os.close(write)
        status = ended(process).status
        return status, [json.loads(line) for line in reader]


def test_of_ours_it_inherits_the_tether_only(stage: Stage) -> None:
    read, write = os.pipe()
    try:
        words = ["run", "x", "--status-fd", str(write), "--", sys.executable, "-c", SHOW]
        answer = stage.run(*words, pass_fds=[write])
    finally:
        os.close(read)
        os.close(write)
    found = inherited(answer.out)
    (tether,) = found.keys() - {0, 1, 2}
    assert ".tether" in found[tether]
    assert tether > 9, "scripts use the low numbers"


def test_what_our_caller_passed_on_is_passed_on(stage: Stage) -> None:
    with open(stage.folder / "mine", "w") as mine:
        code = f"import os; os.write({mine.fileno()}, b'hello')"
        words = ["run", "x", "--", sys.executable, "-c", code]
        assert stage.run(*words, pass_fds=[mine.fileno()]).status == 0
    assert (stage.folder / "mine").read_text() == "hello"


def test_a_low_limit_of_descriptors_does_not_hinder_it(stage: Stage) -> None:
    limited = ["sh", "-c", 'ulimit -n 40; exec "$0" -m holdfast "$@"', sys.executable]
    answer = stage.run("run", "x", "--", sys.executable, "-c", SHOW, program=limited)
    assert answer.status == 0
    assert ".tether" in answer.out


def test_the_story_of_a_run(stage: Stage) -> None:
    status, story = events(stage, "--ttl", "9s", "--", "sh", "-c", "exit 75")
    assert status == 75
    assert [event["event"] for event in story] == ["acquired", "started", "exited", "released"]
    acquired, started, exited, _ = story
    assert acquired["name"] == "x"
    assert acquired["token"] > 0
    assert acquired["ttl"] == 9.0
    assert acquired["owner"]
    assert 0 <= acquired["waited"] < 30
    assert started["pid"] > 0
    assert exited["status"] == 75


def test_the_story_of_one_that_a_signal_ended(stage: Stage) -> None:
    status, story = events(stage, "--", "sh", "-c", "kill -9 $$")
    assert status == 137
    assert story[2] == {"event": "exited", "status": 137, "signal": 9}


def test_the_story_of_one_that_was_busy(stage: Stage) -> None:
    with stage.locks.lock("x"):
        status, story = events(stage, "--no-wait", "--", "true")
        assert status == 75
        assert [event["event"] for event in story] == ["busy"]
        status, story = events(stage, "--no-wait", "--busy-ok", "--", "true")
        assert status == 0
        assert [event["event"] for event in story] == ["busy"]


def test_the_story_of_one_that_could_not_start(stage: Stage) -> None:
    status, story = events(stage, "--", "no-such-command")
    assert status == 127
    assert [event["event"] for event in story] == ["acquired", "not_started", "released"]
    assert story[1]["status"] == 127


def test_the_story_of_an_unreachable_store(stage: Stage) -> None:
    limited = ["sh", "-c", 'ulimit -f 0; exec "$0" -m holdfast "$@"', sys.executable]
    status, story = events(stage, "--", "true", program=limited)
    assert status == 69
    assert [event["event"] for event in story] == ["unreachable"]
    assert story[0]["error"]


def test_the_story_of_a_loss(stage: Stage) -> None:
    script = "kill -CONT $PPID; exec sleep 60"
    breaker = "import holdfast, os; holdfast.connect().force_release('x');"
    command = ["sh", "-c", f'"{sys.executable}" -c "{breaker}"; {script}']
    status, story = events(stage, "--ttl", "30s", "--", *command)
    assert status == 76
    assert [event["event"] for event in story] == ["acquired", "started", "lost", "exited"]
    assert story[2]["reason"]
    assert story[3] == {"event": "exited", "status": 143, "signal": 15}


def test_the_story_of_an_interrupted_wait(stage: Stage) -> None:
    with stage.locks.lock("x"), open(stage.folder / "story", "w+") as story:
        fd = story.fileno()
        process = stage.start("run", "x", "--status-fd", str(fd), "--", "true", pass_fds=[fd])
        eventually(lambda: stage.locks.inspect("x").waiters)
        process.send_signal(signal.SIGTERM)
        assert ended(process).status == 143
        story.seek(0)
        assert json.loads(story.read()) == {"event": "interrupted", "name": "x", "signal": 15}


def test_a_reader_that_has_gone_does_no_harm(stage: Stage) -> None:
    read, write = os.pipe()
    os.close(read)
    words = ["run", "x", "--status-fd", str(write), "--", "sh", "-c", "echo out; exit 3"]
    answer = stage.run(*words, pass_fds=[write])
    os.close(write)
    assert (answer.status, answer.out, answer.err) == (3, "out\n", "")


def test_a_reader_that_does_not_read_does_no_harm(stage: Stage) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b" " * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    words = ["run", "x", "--status-fd", str(write), "--", "sh", "-c", "echo out; exit 3"]
    answer = stage.run(*words, pass_fds=[write])
    os.close(read)
    os.close(write)
    assert (answer.status, answer.out, answer.err) == (3, "out\n", "")


def test_a_stderr_that_nobody_reads_does_not_stop_the_supervision(stage: Stage) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b" " * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    script = "echo $$ > child.pid; exec sleep 60"
    process = stage.start("run", "x", "--ttl", "3s", "--", "sh", "-c", script, stderr=write)
    stage.pid()
    stage.locks.force_release("x")
    assert ended(process).status == 76
    os.close(read)
    os.close(write)


def test_status_to_stderr(stage: Stage) -> None:
    answer = stage.run("run", "x", "--status-fd", "2", "--", "sh", "-c", "echo err >&2")
    assert answer.status == 0
    lines = answer.err.splitlines()
    assert "err" in lines
    lines.remove("err")
    assert [json.loads(line)["event"] for line in lines][-1] == "released"
