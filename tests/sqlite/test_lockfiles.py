"""Lock files are found locked, tethers outlive their maker, and a sweep takes only dead files."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores.sqlite.cleaning import sweep
from holdfast.stores.sqlite.lockfiles import make_file, make_locked
from holdfast.stores.sqlite.presence import Presence
from sqlite.processes import Start, line, starter

HEAD = """
import os, signal, subprocess, sys
from holdfast.stores.sqlite.cleaning import sweep
from holdfast.stores.sqlite.presence import Presence
presence = Presence.of(sys.argv[1])
def say(*what): os.write(1, (" ".join(map(str, what)) + "\\n").encode())  # whole lines
"""
SIMPLE = HEAD + "say(presence.name); signal.pause()"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starter(str(tmp_path)) as start:
        yield start


@pytest.fixture
def mine(tmp_path: Path) -> Presence:
    return Presence.of(str(tmp_path))


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_found_only_when_locked(mine: Presence, start: Start) -> None:
    """Processes start while others sweep as fast as they can: no living one loses a file."""
    sweeping = [
        start(HEAD + "say('up')\nwhile True: sweep(presence)", str(number)) for number in range(2)
    ]
    for process in sweeping:
        line(process)
    code = HEAD + (
        "for _ in range(40):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        child = Presence.of(sys.argv[1])\n"
        "        os._exit(0 if child.intact() else 1)\n"
        "    if os.waitpid(pid, 0)[1]: say('lost')\n"
        "say('done')"
    )
    starting = [start(code) for _ in range(2)]
    for process in starting:
        assert process.communicate()[0].split() == ["done"]
    assert mine.intact()


@pytest.mark.parametrize("way", ["subprocess", "spawn"])
def test_a_tether_lives_on_in_the_command(mine: Presence, start: Start, way: str) -> None:
    code = {
        "subprocess": "subprocess.Popen([sys.executable, '-c', sys.argv[2]], pass_fds=[fd])",
        "spawn": "os.posix_spawn(sys.executable, ['python', '-c', sys.argv[2]], os.environ,\n"
        "    file_actions=[(os.POSIX_SPAWN_DUP2, fd, 9)])",
    }[way]
    other = start(
        HEAD + f"tether = presence.tether(); fd = tether.fd\n{code}\n"
        "say(presence.name, tether.name); signal.pause()",
        "import os, signal; os.write(1, b'up %d\\n' % os.getpid()); signal.pause()",
    )
    said = sorted((line(other) for _ in range(2)), key=len)
    pid = int(said[0].split()[1])
    name, tether = said[1].split()
    other.kill()
    other.wait()
    assert not mine.is_alive(name)
    assert mine.is_tethered(tether)
    sweep(mine)
    assert mine.is_tethered(tether)
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 20
    while mine.is_tethered(tether):
        assert time.monotonic() < end
        time.sleep(0.001)


def test_our_own_tether(mine: Presence, tmp_path: Path) -> None:
    tether = mine.tether()
    assert not os.get_inheritable(tether.fd)
    assert mine.is_tethered(tether.name)
    assert mine.is_tethered(tether.name)  # asking has not let go of it
    kept = os.dup(tether.fd)
    tether.close()
    tether.close()
    assert mine.is_tethered(tether.name)  # as a command would hold it
    assert sweep(mine) == 0
    os.close(kept)
    assert not mine.is_tethered(tether.name)
    assert sweep(mine) == 1
    tether = mine.tether()
    tether.close()
    assert files(tmp_path) == {f"{mine.name}.live"}


def test_sweep(mine: Presence, start: Start, tmp_path: Path) -> None:
    living, dying = start(SIMPLE), start(SIMPLE)
    names = [line(living), line(dying)]
    dying.kill()
    dying.wait()
    for name in names:
        (tmp_path / f"{name}-3.sock").touch()
    (tmp_path / f"{'0' * 16}-1.sock").touch()
    (tmp_path / ".young.live.new").touch()
    (tmp_path / ".old.live.new").touch()
    os.utime(tmp_path / ".old.live.new", (0, time.time() - 3700))
    (tmp_path / "gate").touch()
    (tmp_path / "id").touch()
    assert sweep(mine) == 4
    assert files(tmp_path) == {
        "gate",
        "id",
        ".young.live.new",
        f"{mine.name}.live",
        f"{names[0]}.live",
        f"{names[0]}-3.sock",
    }
    assert sweep(mine) == 0


def test_a_draft_swept_away_is_made_again(tmp_path: Path) -> None:
    swept: list[str] = []

    def make_and_lose(path: str, opened: list[int]) -> None:
        make_file(path, opened)
        if not swept:
            swept.append(path)
            os.unlink(path)

    opened: list[int] = []
    name = make_locked(str(tmp_path), ".tether", opened, make_and_lose)
    (fd,) = opened
    os.close(fd)
    assert len(swept) == 1
    assert name not in swept[0]
    assert files(tmp_path) == {f"{name}.tether"}
