"""Signals: forwarded to the whole group while the command runs; while waiting, they end the wait."""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from typing import Any

import pytest

from cli.stage import Stage, ended, eventually, lives

FORWARDED = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"]


MEMBER = """
import os, signal, sys, time

child = os.fork()
name = "child" if child else "grandchild"

def tell(number, frame):
    with open(name, "w") as file:
        file.write("told\\n")
    os._exit(0)

signal.signal(getattr(signal, "SIG" + sys.argv[1]), tell)
with open(name + ".pid", "w") as file:
    file.write(f"{os.getpid()}\\n")
while True:
    time.sleep(0.05)  # not pause(), which a signal that comes just before it does not end
"""
"""Two processes, each of which writes a word when it gets the signal that is named, and ends."""


@pytest.mark.parametrize("name", FORWARDED)
def test_the_whole_group_gets_it_and_the_status_stays_the_commands(stage: Stage, name: str) -> None:
    # Not shells: one has SIGINT and SIGQUIT ignored behind `&`, and one may miss a signal that hits it
    # while it starts a process.
    (stage.folder / "member.py").write_text(MEMBER)
    process = stage.start("run", "x", "--", sys.executable, "member.py", name)
    stage.pid("child")
    stage.pid("grandchild")
    process.send_signal(getattr(signal, f"SIG{name}"))
    assert stage.wrote("child") == "told\n"
    assert stage.wrote("grandchild") == "told\n"
    assert ended(process).status == 0


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1"])
def test_a_command_that_dies_of_it(stage: Stage, name: str) -> None:
    process = stage.start("run", "x", "--", "sh", "-c", "echo $$ > child.pid; exec sleep 60")
    stage.pid()
    number = getattr(signal, f"SIG{name}")
    process.send_signal(number)
    assert ended(process).status == 128 + number
    assert stage.free()


def test_the_lock_is_held_until_the_command_has_ended(stage: Stage) -> None:
    """Trap 32: told to stop is not stopped."""
    script = (
        "trap 'echo told > told; until [ -e done ]; do sleep 0.01; done; exit 7' TERM;"
        "echo $$ > child.pid; while :; do sleep 0.01; done"
    )
    process = stage.start("run", "x", "--ttl", "2m", "--", "sh", "-c", script)
    stage.pid()
    process.terminate()
    stage.wrote("told")
    assert not stage.free()
    assert stage.run("run", "x", "--no-wait", "--", "true").status == 75
    (stage.folder / "done").touch()
    assert ended(process).status == 7
    assert stage.free()


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
def test_interrupted_while_waiting_it_leaves_the_queue(stage: Stage, name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    with stage.locks.lock("x"):
        process = stage.start("run", "x", "--", "touch", "ran")
        eventually(lambda: stage.locks.inspect("x").waiters, "it waits")
        process.send_signal(signal.SIGUSR1)  # means nothing yet
        process.send_signal(number)
        answer = ended(process)
        assert answer.status == 128 + number
        assert answer.err == ""
        assert stage.locks.inspect("x").waiters == ()
        # Left, not merely noticed to be dead: it has closed what it was to be woken by.
        assert list(stage.path.parent.glob("*-live/*.sock")) == []
    assert stage.free()
    assert not (stage.folder / "ran").exists()


def test_what_is_ignored_stays_ignored(stage: Stage) -> None:
    """As with nohup: neither we nor the command mind a hang-up."""
    program = ["sh", "-c", 'trap \'\' HUP; exec "$0" -m holdfast "$@"', sys.executable]
    script = "echo $$ > child.pid; until [ -e done ]; do sleep 0.02; done; exit 6"
    process = stage.start("run", "x", "--", "sh", "-c", script, program=program)
    child = stage.pid()
    process.send_signal(signal.SIGHUP)
    os.kill(child, signal.SIGHUP)
    (stage.folder / "done").touch()
    assert ended(process).status == 6


def test_the_command_starts_with_the_usual_dispositions(stage: Stage) -> None:
    """Python ignores SIGPIPE; a command that would, too, would never end in `yes | head`."""

    def dispositions(*words: str, **options: Any) -> dict[str, int]:
        answer = stage.run(*words, "^Sig[BI]", "/proc/self/status", **options)
        pairs = (line.split() for line in answer.out.splitlines())
        # The C library keeps 32 and 33 for itself.
        return {name: int(mask, 16) & 0x7FFFFFFF for name, mask in pairs}

    found = dispositions("run", "x", "--", "grep")
    assert found.keys() == {"SigBlk:", "SigIgn:"}
    assert found == dispositions(program=["grep"])


def test_a_command_that_somebody_stopped_keeps_its_lease(stage: Stage) -> None:
    script = "echo $$ > child.pid; until [ -e done ]; do sleep 0.02; done"
    process = stage.start("run", "x", "--ttl", "9s", "--", "sh", "-c", script)
    os.kill(stage.pid(), signal.SIGSTOP)
    # It is renewed meanwhile.
    seen = [stage.locks.inspect("x").holders[0]]

    def renewed_often() -> bool:
        seen.append(stage.locks.inspect("x").holders[0])
        return sum(a.remaining < b.remaining for a, b in pairwise(seen)) > 1

    eventually(renewed_often)
    assert {holder.token for holder in seen} == {seen[0].token}
    (stage.folder / "done").touch()
    process.send_signal(signal.SIGCONT)  # forwarded
    assert ended(process).status == 0


def test_a_mistake_of_ours_does_not_leave_the_command_running(stage: Stage) -> None:
    """If the supervisor fails, the group is ended and the lock is not given up before that."""
    code = (
        "import sys\n"
        "from holdfast.cli import supervisor\n"
        "from holdfast.cli.__main__ import main\n"
        "import os, time\n"
        "def broken(self):\n"
        "    while not os.path.exists('child.pid'): time.sleep(0.01)\n"
        "    raise RuntimeError('broken on purpose')\n"
        "supervisor.Supervisor._goes_on = broken\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    script = "trap '' TERM; echo $$ > child.pid; while :; do sleep 0.02; done"
    answer = stage.run(
        "run",
        "x",
        "--grace",
        "100ms",
        "--",
        "sh",
        "-c",
        script,
        program=[sys.executable, "-c", code],
    )
    assert answer.status == 70
    assert "broken on purpose" in answer.err
    assert not lives(stage.pid())
    assert stage.free()
