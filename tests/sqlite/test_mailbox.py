"""Wake-ups arrive, never block, and tell a dead receiver from a full one."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import BackendUnavailable, ConfigError
from holdfast.stores.sqlite import mailbox as module
from holdfast.stores.sqlite.mailbox import DELIVERED, GONE, MAX_PAYLOAD, MISSED, Mailbox, send
from sqlite.processes import Start, line, starter
from worlds.descriptors import readable

HEAD = """
import os, select, signal, sys
from holdfast.stores.sqlite.mailbox import Mailbox, send
def say(*what): os.write(1, (" ".join(map(str, what)) + "\\n").encode())  # whole lines
def wait(box):
    select.select([box], [], [])
    return box.receive()
"""


@pytest.fixture(params=["short", "long", "ümlaut" * 15])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Also one whose path does not fit into a socket's address, by characters or by bytes."""
    folder = tmp_path / (request.param * (30 if request.param == "long" else 1))
    folder.mkdir()
    return str(folder)


@pytest.fixture
def start(folder: str) -> Iterator[Start]:
    with starter(folder) as start:
        yield start


@pytest.fixture
def box(folder: str) -> Iterator[Mailbox]:
    box = Mailbox(folder, "me")
    yield box
    box.close()


def test_to_ourselves(box: Mailbox, folder: str) -> None:
    assert box.receive() == []
    assert box.address.startswith("me-")
    assert box.address.endswith(".sock")
    assert not os.get_inheritable(box.fileno())
    payloads = [b"a", b"", b"x" * MAX_PAYLOAD]
    for payload in payloads:
        assert send(folder, box.address, payload) == DELIVERED
    assert readable(box, 0)
    assert box.receive() == payloads
    assert box.receive() == []
    with pytest.raises(ValueError, match="512"):
        send(folder, box.address, b"x" * (MAX_PAYLOAD + 1))


def test_each_has_its_own(box: Mailbox, folder: str) -> None:
    other = Mailbox(folder, "me")
    assert other.address != box.address
    send(folder, other.address, b"yours")
    assert box.receive() == []
    assert other.receive() == [b"yours"]
    other.close()
    other.close()
    assert other.fileno() == -1
    assert other.receive() == []
    assert send(folder, other.address, b"?") == GONE
    assert os.listdir(folder) == [box.address]


def test_a_name_that_is_taken_is_passed_over(folder: str) -> None:
    first = Mailbox(folder, "me")
    number = int(first.address[3:-5])
    Path(folder, f"me-{number + 1}.sock").touch()
    second = Mailbox(folder, "me")
    assert second.address == f"me-{number + 2}.sock"
    first.close()
    second.close()


def test_another_process(box: Mailbox, folder: str, start: Start) -> None:
    other = start(
        HEAD + "box = Mailbox(sys.argv[1], 'other'); say(box.address)\n"
        "for _ in range(100):\n"
        "    for message in wait(box): send(sys.argv[1], sys.argv[2], message)\n",
        box.address,
    )
    address = line(other)
    for number in range(100):
        assert send(folder, address, b"%d" % number) == DELIVERED
        assert readable(box, 5)
        assert box.receive() == [b"%d" % number]
    other.wait()
    assert send(folder, address, b"gone") == GONE


def test_a_killed_receiver_is_gone(folder: str, start: Start) -> None:
    other = start(HEAD + "box = Mailbox(sys.argv[1], 'x'); say(box.address); signal.pause()")
    address = line(other)
    assert send(folder, address, b"") == DELIVERED
    other.kill()
    other.wait()
    assert stat.S_ISSOCK(os.stat(f"{folder}/{address}").st_mode)  # its file is still there
    assert send(folder, address, b"") == GONE
    assert send(folder, "never-1.sock", b"") == GONE


def test_a_full_receiver_is_not_gone_and_holds_up_nobody(box: Mailbox, folder: str) -> None:
    full = [Mailbox(folder, "full") for _ in range(60)]
    begun = time.monotonic()
    for other in full:
        sent = 0
        while send(folder, other.address, b"x" * MAX_PAYLOAD) == DELIVERED:
            sent += 1
        assert sent > 1
        assert send(folder, other.address, b"") == MISSED
        # Far more is under way than one sender's buffer holds; others are reached all the same.
        assert send(folder, box.address, b"wake") == DELIVERED
        assert box.receive() == [b"wake"]
        assert sent <= module._MOST
    assert time.monotonic() - begun < 30
    assert len(full[0].receive()) > 1
    assert send(folder, full[0].address, b"again") == DELIVERED
    for other in full:
        other.close()


def test_from_many_threads(box: Mailbox, folder: str) -> None:
    received: list[bytes] = []
    missed: list[bytes] = []

    def work(thread: int) -> None:
        for number in range(200):
            payload = b"%d %d" % (thread, number)
            while send(folder, box.address, payload) != DELIVERED:
                missed.append(payload)
                time.sleep(0.001)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 20
    while len(received) < 800 and time.monotonic() < end:
        readable(box, 0.1)
        received += box.receive()
    for thread in threads:
        thread.join()
    assert len(set(received)) == len(received) == 800


def test_fork(folder: str, start: Start) -> None:
    other = start(
        HEAD
        + "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        + "box = Mailbox(sys.argv[1], 'parent'); send(sys.argv[1], box.address, b'')\n"
        + "if not os.fork():\n"
        + "    say('child', box.fileno(), len(box.receive())); box.close()\n"
        + "    mine = Mailbox(sys.argv[1], 'child'); say('at', mine.address)\n"
        + "    say('got', wait(mine)[0].decode(), send(sys.argv[1], mine.address, b''))\n"
        + "    sys.stdin.readline(); os._exit(0)\n"
        + "signal.sigwait([signal.SIGUSR1]); say('in', box.address, len(wait(box))); signal.pause()\n"
    )
    assert line(other) == "child -1 0"  # the parent's is closed in the child, and not unlinked
    child = line(other).split()[1]
    assert send(folder, child, b"hello") == DELIVERED
    assert line(other) == "got hello delivered"
    other.send_signal(signal.SIGUSR1)
    _, parent, count = line(other).split()
    assert count == "1"
    assert send(folder, parent, b"") == DELIVERED
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert send(folder, parent, b"") == GONE  # though its child lives
    assert send(folder, child, b"") == DELIVERED


def test_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendUnavailable, match="missing"):
        Mailbox(str(tmp_path / "missing"), "me")
    long = tmp_path / ("x" * 120)
    with pytest.raises(BackendUnavailable, match="xxx"):
        Mailbox(str(long), "me")
    long.mkdir()
    monkeypatch.setattr(os.path, "isdir", lambda _: False)
    with pytest.raises(ConfigError, match="shorter"):
        Mailbox(str(long), "me")
