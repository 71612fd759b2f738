"""When `run` says that the command was ended, nothing of it runs any more, wherever it has gone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest

from cli.stage import HOLDFAST, Stage, ended, eventually, lives
from cli.test_run_lost import STALL, last_beat

BEAT = "trap '' TERM; echo $$ > child.pid; while :; do date +%s.%N >> beat; sleep 0.01; done"
"""A command that does not listen to SIGTERM."""
DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open("daemon.pid", "w").write(f"{os.getpid()}\\n")
while True:
    time.sleep(0.01)
    open("beat", "a").write(f"{time.time()}\\n")
"""
"""A program that makes a daemon of itself, by the book."""


def holdfast_run(stage: Stage, name: str, store: str, *options: str) -> list[str]:
    url = f"sqlite://{stage.folder / store / 'locks.db'}"
    return [*HOLDFAST, "--url", url, "run", name, *options, "--"]


def all_alive(stage: Stage) -> list[int]:
    """Returns the processes whose folder is that of the test, with which all of them started."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.readlink(f"/proc/{name}/cwd") == str(stage.folder) and lives(int(name)):
                    found.append(int(name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("apart", [False, True], ids=["plain", "setsid"])
@pytest.mark.parametrize("stores", ["store other", "store store", "store other third"])
def test_nested_and_stubborn(stage: Stage, stores: str, apart: bool) -> None:
    """The outer store falls silent; the inner ones are well, or silent too."""
    words: list[str] = []
    for depth, store in enumerate(stores.split()):
        if apart and words:
            words.append("setsid")
        ttl = "3s" if not depth else "1m"
        words += holdfast_run(stage, f"lock-{depth}", store, "--ttl", ttl, "--grace", "1m")
    words += ["setsid"] if apart else []
    process = stage.start(*words, "sh", "-c", BEAT, program=[])
    child = stage.pid()
    stage.wrote("beat")
    with stage.frozen_store() as since:
        answer = ended(process)
        assert not lives(child)
        assert all_alive(stage) == []
        assert last_beat(stage) < since + 3 + STALL
    assert answer.status == 76, answer
    assert "the lease on 'lock-0' is lost, so the command was ended" in answer.err


def test_a_nested_command_is_told_by_its_own_wrapper_and_once(stage: Stage) -> None:
    script = (
        "trap 'echo told >> told' TERM; echo $$ > child.pid;"
        "until [ -e done ]; do sleep 0.01; done; exit 3"
    )
    words = [
        *holdfast_run(stage, "a", "store", "--ttl", "1m", "--grace", "1m"),
        *holdfast_run(stage, "b", "other"),
        *holdfast_run(stage, "c", "other"),
    ]
    process = stage.start(*words, "sh", "-c", script, program=[])
    stage.pid()
    stage.locks.force_release("a")
    process.send_signal(signal.SIGCONT)  # it looks at its lease
    stage.wrote("told")
    (stage.folder / "done").touch()
    assert ended(process).status == 76
    assert stage.wrote("told") == "told\n"


@pytest.mark.parametrize("name", ["TERM", "INT", "USR1"])
def test_a_signal_passes_through_nested_wrappers_once(stage: Stage, name: str) -> None:
    code = (
        "import os, signal, time\n"
        f"signal.signal(signal.SIG{name}, lambda *_: open('told', 'a').write('told\\n'))\n"
        "open('child.pid', 'w').write(f'{os.getpid()}\\n')\n"
        "while not os.path.exists('done'): time.sleep(0.01)\n"
        "raise SystemExit(3)"
    )
    words = [*holdfast_run(stage, "a", "store"), *holdfast_run(stage, "b", "other")]
    process = stage.start(*words, sys.executable, "-c", code, program=[])
    stage.pid()
    process.send_signal(getattr(signal, f"SIG{name}"))
    stage.wrote("told")
    (stage.folder / "done").touch()
    assert ended(process).status == 3
    assert stage.wrote("told") == "told\n"


@pytest.mark.parametrize("main", ["exec sleep 60", "exit 0"], ids=["beside", "left"])
def test_a_daemon_that_was_started_under_the_lock_is_ended(stage: Stage, main: str) -> None:
    (stage.folder / "daemon.py").write_text(DAEMON)
    script = f"{sys.executable} daemon.py </dev/null >/dev/null 2>&1; {main}"
    process = stage.start("run", "x", "--ttl", "3s", "--grace", "1m", "--", "sh", "-c", script)
    daemon = stage.pid("daemon")
    stage.wrote("beat")
    with stage.frozen_store() as since:
        answer = ended(process)
        assert not lives(daemon)
        assert all_alive(stage) == []
        assert last_beat(stage) < since + 3 + STALL
    assert answer.status == 76
    assert "is lost, so the command was ended" in answer.err


COMET = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
open("child.pid", "w").write(f"{os.getpid()}\\n")
end = time.monotonic() + 30
while time.monotonic() < end:
    APART
    if os.fork(): os._exit(0)
"""
"""A program that runs away: each of its processes lives for one fork only."""


@pytest.mark.parametrize("apart", ["pass", "os.setpgid(0, 0)"], ids=["in the group", "setpgid"])
def test_one_that_forks_while_it_is_killed(stage: Stage, apart: str) -> None:
    code = COMET.replace("APART", apart)
    words = ["run", "x", "--ttl", "20s", "--grace", "0", "--", sys.executable, "-c", code]
    process = stage.start(*words)
    stage.pid()
    stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)
    answer = ended(process)
    assert answer.status == 76, answer
    assert all_alive(stage) == []


def test_a_family_that_grows_while_it_is_killed(stage: Stage) -> None:
    """Up to 300 of them, each in a session of its own."""
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('child.pid', 'w').write(f'{os.getpid()}\\n')\n"
        "read, write = os.pipe()\n"
        "os.write(write, b'.' * 300)\n"
        "end = time.monotonic() + 30\n"
        "while time.monotonic() < end:\n"
        "    time.sleep(0.02)\n"
        "    os.read(read, 1)\n"
        "    if not os.fork(): os.setsid()\n"
    )
    words = ["run", "x", "--ttl", "20s", "--grace", "0", "--", sys.executable, "-c", code]
    process = stage.start(*words)
    stage.pid()
    eventually(lambda: len(all_alive(stage)) > 20)
    stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)
    answer = ended(process)
    assert answer.status == 76, answer
    assert all_alive(stage) == []


def test_jobs_of_an_interactive_shell_are_ended(stage: Stage) -> None:
    """Each has a process group of its own, and the shell does not listen to SIGTERM."""
    script = (
        "set -m; trap '' TERM; sh -c 'echo $$ > job.pid; exec sleep 60' & "
        "until [ -s job.pid ]; do sleep 0.01; done; echo $$ > child.pid; while :; do sleep 0.01; done"
    )
    process = stage.start("run", "x", "--ttl", "20s", "--grace", "50ms", "--", "bash", "-c", script)
    stage.pid()
    stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)
    assert ended(process).status == 76
    assert all_alive(stage) == []


def test_a_stopped_process_apart_hears_that_it_is_to_end(stage: Stage) -> None:
    script = (
        "trap 'echo told > told; exit 0' TERM; echo $$ > child.pid; while :; do sleep 0.01; done"
    )
    process = stage.start(
        "run", "x", "--ttl", "20s", "--grace", "20s", "--", "setsid", "sh", "-c", script
    )
    os.killpg(stage.pid(), signal.SIGSTOP)
    stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)
    assert ended(process).status == 76
    assert stage.wrote("told") == "told\n"


def test_children_that_we_had_before_are_none_of_it(stage: Stage) -> None:
    """A script that started something beside us, and became us."""
    script = 'sh -c "echo \\$\\$ > other.pid; exec sleep 60" & exec "$0" -m holdfast "$@"'
    program = ["sh", "-c", script, sys.executable]
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = stage.start("run", "x", "--", "true", program=program, **options)
    assert process.wait(30) == 0
    assert lives(stage.pid("other"))
    words = ["run", "x", "--ttl", "20s", "--grace", "0", "--", "setsid", "sh", "-c", BEAT]
    process = stage.start(*words, program=program, **options)
    child = stage.pid()
    other = stage.pid("other")
    stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 76
    assert not lives(child)
    assert lives(other)
    for pid in all_alive(stage):
        os.kill(pid, signal.SIGKILL)


def test_the_inner_wrapper_killed_the_outer_one_waits_for_the_command(stage: Stage) -> None:
    script = "echo $PPID > inner.pid; echo $$ > child.pid; until [ -e done ]; do sleep 0.02; done"
    words = [*holdfast_run(stage, "a", "store"), *holdfast_run(stage, "b", "store", "--ttl", "5m")]
    process = stage.start(*words, "setsid", "--wait", "sh", "-c", script, program=[])
    child = stage.pid()
    inner = eventually(lambda: wrapper_of(stage, "b"))
    os.kill(inner, signal.SIGKILL)
    eventually(lambda: not lives(inner))
    assert lives(child)
    for name in ("a", "b"):
        assert stage.run("run", name, "--no-wait", "--", "true").status == 75
    (stage.folder / "done").touch()
    assert ended(process).status == 137
    for name in ("a", "b"):
        assert stage.run("run", name, "--no-wait", "--", "true").status == 0


def test_the_outer_wrapper_killed_both_locks_stay_while_the_command_lives(stage: Stage) -> None:
    words = [
        *holdfast_run(stage, "a", "store", "--ttl", "5m"),
        *holdfast_run(stage, "b", "store", "--ttl", "5m"),
    ]
    script = "echo $$ > child.pid; until [ -e done ]; do sleep 0.02; done"
    process = stage.start(*words, "setsid", "sh", "-c", script, program=[])
    child = stage.pid()
    process.kill()
    process.wait()
    assert lives(child)
    for name in ("a", "b"):
        assert stage.run("run", name, "--no-wait", "--", "true").status == 75
    (stage.folder / "done").touch()
    for name in ("a", "b"):
        assert stage.run("run", name, "--wait", "20s", "--", "true").status == 0


def wrapper_of(stage: Stage, name: str) -> int:
    """Returns the process that holds that lock."""
    holders = stage.locks.inspect(name).holders
    return holders[0].label.pid if holders else 0


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can start another user's"
)
def test_what_may_not_be_ended_is_not_said_to_be_ended(stage: Stage) -> None:
    """As with `holdfast run x -- sudo …` by a user: here by one who may not kill."""
    powerless = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill", *HOLDFAST]
    words = ["run", "x", "--ttl", "20s", "--grace", "0", "--status-fd", "2", "--"]
    command = ["setpriv", "--reuid=65534", "--clear-groups", "sleep", "60"]
    process = stage.start(*words, *command, program=powerless)
    other = eventually(lambda: [pid for pid in all_alive(stage) if owner(pid) == 65534])[0]
    stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)
    process.wait(30)
    assert lives(other)
    os.kill(other, signal.SIGKILL)  # it has our pipes
    answer = ended(process)
    assert answer.status == 77, answer
    assert f"may still run: sleep (pid {other}, runs as another user)" in answer.err
    assert f'"event": "not_ended", "name": "x", "pids": [{other}]' in answer.err
    assert "was ended" not in answer.err


def owner(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def test_a_program_that_closes_every_descriptor_is_found_too(stage: Stage) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "os.closerange(0, 1024)\n"
        "open('child.pid', 'w').write(f'{os.getpid()}\\n')\n"
        "time.sleep(60)\n"
    )
    words = ["run", "x", "--ttl", "20s", "--grace", "0", "--", sys.executable, "-c", code]
    process = stage.start(*words)
    child = stage.pid()
    assert stage.run("run", "x", "--no-wait", "--", "true").status == 75
    stage.locks.force_release("x")
    process.send_signal(signal.SIGCONT)
    assert ended(process).status == 76
    assert not lives(child)
