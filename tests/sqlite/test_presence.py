"""A process is alive exactly as long as it is, however it ends and whoever it has started."""

from __future__ import annotations

import errno
import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.stores.sqlite.cleaning import sweep
from holdfast.stores.sqlite.presence import Presence
from sqlite.processes import Start, line, starter, tell

HEAD = """
import os, signal, subprocess, sys
from holdfast.stores.sqlite.presence import Presence
presence = Presence.of(sys.argv[1])
def say(*what): os.write(1, (" ".join(map(str, what)) + "\\n").encode())  # whole lines
"""
SIMPLE = HEAD + "say(presence.name); signal.pause()"
# Stays until the test closes our standard input, whoever has died before.
STAY = "import os, sys; os.write(1, b'up\\n'); sys.stdin.read()"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starter(str(tmp_path)) as start:
        yield start


@pytest.fixture
def mine(tmp_path: Path) -> Presence:
    return Presence.of(str(tmp_path))


def watch(presence: Presence, name: str) -> int | None:
    opened: list[int] = []
    presence.watch(name, opened)
    return opened[0] if opened else None


def hung_up(fd: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_one_per_process_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "locks.db-live"
    found: list[Presence] = []
    threads = [
        threading.Thread(target=lambda: found.append(Presence.of(str(folder)))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (tmp_path / "link").symlink_to(folder)
    found.append(Presence.of(str(tmp_path / "link")))
    assert len(found) == 17
    assert len({id(presence) for presence in found}) == 1
    assert Presence.of(str(tmp_path / "other")) is not found[0]
    assert files(folder) == {f"{found[0].name}.live"}
    assert found[0].intact()


def test_our_own_questions_do_not_drop_our_lock(mine: Presence, start: Start) -> None:
    assert mine.is_alive(mine.name)
    assert watch(mine, mine.name) is None
    sweep(mine)
    other = start(HEAD + "say(presence.is_alive(sys.argv[2]))", mine.name)
    assert line(other) == "True"


def test_our_own_reading_does_not_drop_our_lock(
    mine: Presence, start: Start, tmp_path: Path
) -> None:
    """As by a process that copies its state folder, or looks for something in it."""
    for path in tmp_path.iterdir():
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            os.read(fd, 100)
        os.close(fd)
    other = start(HEAD + "say(presence.is_alive(sys.argv[2]))", mine.name)
    assert line(other) == "True"
    assert mine.intact()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_dead_at_once(mine: Presence, start: Start, how: signal.Signals) -> None:
    other = start(SIMPLE)
    name = line(other)
    assert mine.is_alive(name)
    other.send_signal(how)
    other.wait()
    assert not mine.is_alive(name)
    assert not mine.is_alive("0" * 16)


def test_a_frozen_process_is_alive(mine: Presence, start: Start) -> None:
    other = start(SIMPLE)
    name = line(other)
    other.send_signal(signal.SIGSTOP)
    assert mine.is_alive(name)
    other.kill()
    other.wait()
    assert not mine.is_alive(name)


def test_a_normal_end_leaves_nothing_but_only_after_the_last_exit_handler(
    mine: Presence, start: Start, tmp_path: Path
) -> None:
    before = files(tmp_path)
    other = start(
        "import atexit; atexit.register(lambda: say(os.path.exists(path)))\n"
        + HEAD
        + "path = f'{sys.argv[1]}/{presence.name}.live'\n"
        + "if not os.fork(): sys.exit()\n"  # a child ends first, and must take nothing with it
        + "os.wait(); say(presence.intact())"
    )
    assert other.communicate()[0].split() == ["True", "True", "True"]
    assert files(tmp_path) == before
    assert mine.intact()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EMFILE, errno.EIO])
def test_no_answer_counts_as_alive(
    mine: Presence, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert mine.is_alive("0" * 16)
        assert mine.is_tethered("0" * 16)
        assert watch(mine, "0" * 16) is None
    assert not mine.is_alive("0" * 16)
    assert not mine.is_tethered("0" * 16)


def test_an_emptied_folder_proves_nothing(mine: Presence, tmp_path: Path) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    assert not mine.intact()
    assert mine.is_alive("0" * 16)
    assert mine.is_tethered("0" * 16)
    again = Presence.of(str(tmp_path))
    assert again.name != mine.name
    assert again.intact()
    assert not again.is_alive("0" * 16)
    assert again.is_alive(mine.name)  # ours, whatever became of its file


def test_descriptors_closed_behind_our_back_are_noticed(start: Start) -> None:
    other = start(
        HEAD
        + "say(presence.intact()); os.closerange(3, 64); say(presence.intact())\n"
        + "again = Presence.of(sys.argv[1]); say(again.intact(), again.name != presence.name)"
    )
    assert other.communicate()[0].split() == ["True", "False", "True", "True"]


def test_watch(mine: Presence, start: Start) -> None:
    other = start(SIMPLE)
    name = line(other)
    fd = watch(mine, name)
    assert fd is not None
    assert not os.get_inheritable(fd)
    assert mine.is_alive(name)
    assert not hung_up(fd, 0.05)
    other.kill()
    assert hung_up(fd, 5)
    assert not mine.is_alive(name)  # without waiting: the lock goes before the hang-up
    os.close(fd)
    assert watch(mine, name) is None  # the FIFO is there, and nobody behind it
    assert watch(mine, "0" * 16) is None


def test_who_is_woken_by_a_death_sees_it(mine: Presence, start: Start) -> None:
    code = HEAD + (
        "for line in sys.stdin:\n"
        "    r, w = os.pipe()\n"
        "    pid = os.fork()\n"
        "    if not pid: os.write(w, Presence.of(sys.argv[1]).name.encode()); signal.pause()\n"
        "    say(os.read(r, 99).decode(), pid)\n"
        "    os.waitpid(pid, 0); os.close(r); os.close(w)"
    )
    other = start(code)
    for _ in range(60):
        tell(other)
        name, pid = line(other).split()
        fd = None
        while fd is None:
            fd = watch(mine, name)
        os.kill(int(pid), signal.SIGKILL)
        assert hung_up(fd, 5)
        assert not mine.is_alive(name)
        os.close(fd)


def test_a_forked_child_neither_drops_nor_prolongs_its_parent(mine: Presence, start: Start) -> None:
    other = start(
        HEAD
        + "tether = presence.tether()\n"
        + "if not os.fork():\n"
        + "    say('up', presence.intact(), tether.fd, presence.is_alive(presence.name))\n"
        + "    own = Presence.of(sys.argv[1])\n"
        + "    say(own.name, own.intact(), own.is_alive(presence.name))\n"
        + "    sys.stdin.read(); sys.exit()\n"
        + "say(presence.name, tether.name); signal.pause()"
    )
    said = sorted((line(other) for _ in range(3)), key=len)
    # In the child the parent's presence is not its own, and is found alive from outside.
    assert said[0] == "up False -1 True"
    parent, tether = said[2].split()
    child, *truths = said[1].split()
    assert truths == ["True", "True"]
    assert child != parent
    fd = watch(mine, parent)
    assert fd is not None
    assert mine.is_alive(parent)  # though the child has closed the descriptor
    assert mine.is_tethered(tether)
    other.kill()
    assert hung_up(fd, 5)
    os.close(fd)
    other.wait()
    assert not mine.is_alive(parent)
    assert not mine.is_tethered(tether)
    assert mine.is_alive(child)


@pytest.mark.parametrize("way", ["subprocess", "spawn", "exec"])
def test_another_program_does_not_prolong(mine: Presence, start: Start, way: str) -> None:
    code = {
        "subprocess": "subprocess.Popen([sys.executable, '-c', sys.argv[2]], close_fds=False)\n"
        "signal.pause()",
        "spawn": "os.posix_spawn(sys.executable, ['python', '-c', sys.argv[2]], os.environ)\n"
        "signal.pause()",
        "exec": "os.execv(sys.executable, ['python', '-c', sys.argv[2]])",
    }[way]
    other = start(HEAD + "say(presence.name)\n" + code, STAY)
    name = line(other)
    assert line(other) == "up"
    if way != "exec":
        assert mine.is_alive(name)
        other.kill()
        other.wait()
    assert not mine.is_alive(name)
    assert watch(mine, name) is None
