"""`holdfast watch`: what it tells of, and a terminal that is as it was however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from cli.neighbour import HOSTILE, rude_client, waiter
from cli.screen import Screen
from cli.stage import HOLDFAST, Process, Stage, ended, eventually, is_stopped
from holdfast.chaos.servers.redis import RedisServer
from holdfast.cli.drawing import width
from worlds.descriptors import readable

LEFT = "\033[?7h\033[?25h\033[?1049l"
CTRL_C, CTRL_S, CTRL_Z = "\x03", "\x13", "\x1a"


class Reader:
    """The lines that a watch writes, each waited for."""

    def __init__(self, watch: Process) -> None:
        self.watch = watch
        self._text = b""

    def next(self) -> dict[str, Any]:
        assert self.watch.stdout is not None
        fd = self.watch.stdout.fileno()
        while b"\n" not in self._text:
            assert readable(fd, 30.0), "nothing was told"
            data = os.read(fd, 65536)
            assert data, f"it has ended: {ended(self.watch)}"
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        assert line.isascii()
        assert line.decode().isprintable()
        found: dict[str, Any] = json.loads(line)
        return found

    def until(self, change: str) -> dict[str, Any]:
        while (found := self.next())["change"] != change:
            pass
        return found


def start(stage: Stage, *words: str, **options: Any) -> Reader:
    return Reader(stage.start("watch", "--every", "100ms", *words, **options))


@pytest.fixture
def screen(stage: Stage) -> Iterator[Callable[..., Screen]]:
    screens: list[Screen] = []

    def make(*words: str, **options: Any) -> Screen:
        command = [*HOLDFAST, "watch", "--every", "100ms", *words]
        screens.append(Screen(stage, *command, TERM="xterm", **options))
        return screens[-1]

    try:
        yield make
    finally:
        for one in screens:
            one.close()


def test_a_line_for_each_change(stage: Stage) -> None:
    with rude_client(stage.url) as client, stage.locks.lock("other"):
        lease = client.lock("a:x").acquire()
        lines = start(stage, "a:")
        first = lines.next()
        assert (first["change"], first["name"], first["kind"]) == ("granted", "a:x", "lock")
        assert (first["owner"], first["token"]) == (lease.owner, lease.token)
        assert (first["label"], first["pid"]) == (HOSTILE, os.getpid())
        with holdfast.connect(stage.url) as other, waiter(other, "a:x"):
            queued = lines.next()
            assert (queued["change"], queued["waiting"]) == ("queued", 1)
            lease.release()
            gone, given = lines.next(), lines.next()
            assert (gone["change"], gone["owner"]) == ("ended", lease.owner)
            assert (given["change"], given["owner"]) == ("granted", queued["owner"])
        assert lines.next()["change"] == "ended"
        lines.watch.terminate()
        assert ended(lines.watch).status == 128 + signal.SIGTERM


def test_a_store_that_goes_and_comes_back(stage: Stage) -> None:
    server = RedisServer(password="hunter2")
    try:
        url = server.url.replace("//", "//default:hunter2@")
        lines = start(stage, env=stage.environment(HOLDFAST_URL=url))
        with holdfast.connect(url) as locks, locks.lock("x"):
            assert lines.next()["name"] == "x"
        assert lines.next()["change"] == "ended"
        server.kill()
        gone = lines.until("unreachable")
        assert "hunter2" not in gone["error"]
        server.start()
        assert lines.next()["change"] == "reached"
        with holdfast.connect(url) as locks, locks.lock("y"):
            assert lines.next()["name"] == "y"
        lines.watch.send_signal(signal.SIGINT)
        assert ended(lines.watch).status == 130
    finally:
        server.stop()


def test_a_store_that_is_away_at_the_start(stage: Stage) -> None:
    server = RedisServer()
    server.kill()
    try:
        lines = start(stage, env=stage.environment(HOLDFAST_URL=server.url))
        assert lines.next()["change"] == "unreachable"
        server.start()
        assert lines.next()["change"] == "reached"
        with holdfast.connect(server.url) as locks, locks.lock("x"):
            assert lines.next()["name"] == "x"
        lines.watch.terminate()
        assert ended(lines.watch).status == 128 + signal.SIGTERM
    finally:
        server.stop()


def test_a_reader_that_goes_away_is_noticed_though_nothing_changes(stage: Stage) -> None:
    with stage.locks.lock("x"):
        lines = start(stage)
        lines.next()
        assert lines.watch.stdout is not None
        lines.watch.stdout.close()
        lines.watch.stdout = None
        _, err = lines.watch.communicate(timeout=30)
        assert (lines.watch.returncode, err) == (128 + signal.SIGPIPE, "")


def test_a_reader_that_does_not_read_does_not_keep_it_from_ending(stage: Stage) -> None:
    client = holdfast.connect(stage.url, label="x" * 250)
    with client:
        leases = [client.lock(f"{number:04}" + "n" * 900).acquire() for number in range(80)]
        watch = stage.start("watch")  # more than a pipe holds
        assert watch.stdout is not None
        assert readable(watch.stdout.fileno(), 30.0)
        watch.terminate()
        watch.wait(30)
        assert watch.returncode == 128 + signal.SIGTERM
        for lease in leases:
            lease.release()


def end_by(number: int) -> Callable[[Screen], None]:
    return lambda shown: shown.process.send_signal(number)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda shown: shown.type("q"), 0),
        (lambda shown: shown.type(CTRL_C), 130),
        (end_by(signal.SIGTERM), 128 + signal.SIGTERM),
        (end_by(signal.SIGHUP), 128 + signal.SIGHUP),
        (end_by(signal.SIGQUIT), 128 + signal.SIGQUIT),
    ],
    ids=["q", "ctrl-c", "TERM", "HUP", "QUIT"],
)
def test_the_terminal_is_as_it_was(
    stage: Stage,
    screen: Callable[..., Screen],
    end: Callable[[Screen], None],
    status: int,
) -> None:
    with stage.locks.lock("first"):
        shown = screen()
        before = shown.modes()
        shown.expect("first")
        assert shown.modes() != before
        end(shown)
        assert shown.ended() == status
        assert LEFT in shown.text[-40:]
        assert shown.modes() == before


def test_ctrl_s_does_not_keep_it_from_ending(stage: Stage, screen: Callable[..., Screen]) -> None:
    with stage.locks.lock("first"):
        shown = screen()
        before = shown.modes()
        shown.expect("first")
        shown.type(CTRL_S)
        shown.process.terminate()
        assert shown.ended() == 128 + signal.SIGTERM
        assert LEFT in shown.text[-40:]
        assert shown.modes() == before


def test_ctrl_z_gives_the_terminal_back_meanwhile(stage: Stage) -> None:
    with stage.locks.lock("first"):
        shown = Screen(stage, "bash", "--norc", "-i", TERM="xterm")
        try:
            shown.expect("$ ")
            before = shown.modes()
            shown.line(" ".join([*HOLDFAST, "watch"]))
            shown.expect("first")
            shown.type(CTRL_Z)
            shown.expect(LEFT)
            shown.expect("Stopped")
            shown.expect("$ ")
            assert shown.modes() == before
            shown.line("fg")
            shown.expect("\033[?1049h")
            shown.expect("first")
            shown.type("q")
            shown.expect(LEFT)
            shown.line("echo status $?")
            shown.expect("status 0")
        finally:
            shown.close()


def test_it_follows_the_size_of_the_terminal(stage: Stage, screen: Callable[..., Screen]) -> None:
    with rude_client(stage.url, "somebody with a rather long label that is cut") as client:
        leases = [client.lock(f"lock-{number:02}").acquire() for number in range(30)]
        shown = screen(size=(60, 10))
        shown.expect("30 locks held")
        shown.expect("1-6 of 30")
        shown.type("j")
        shown.expect("2-7 of 30")
        shown.type("\033[6~")
        shown.expect("8-13 of 30")
        shown.type("G")
        shown.expect("25-30 of 30")
        shown.resize(120, 40)
        shown.expect("that is cut (")
        shown.expect("q quit\033[")
        shown.type("q")
        assert shown.ended() == 0
        for lease in leases:
            lease.release()


def test_every_holder_of_a_semaphore_can_be_scrolled_to(
    stage: Stage, screen: Callable[..., Screen]
) -> None:
    pool = stage.locks.semaphore("a-pool", permits=20)
    leases = [pool.acquire() for _ in range(20)]
    leases.append(stage.locks.lock("b-lock").acquire())
    shown = screen(size=(60, 10))
    shown.expect("1-6 of 21")
    shown.type("G")
    shown.expect("16-21 of 21")
    picture = shown.text.partition("16-21 of 21")[0].rpartition("\033[?2026h")[2]
    assert "a-pool" in picture  # in the first row, though its first holders are above
    assert "b-lock" in picture
    shown.type("q")
    assert shown.ended() == 0
    for lease in leases:
        lease.release()


def test_nothing_is_wider_than_the_terminal(stage: Stage, screen: Callable[..., Screen]) -> None:
    with rude_client(stage.url) as client:
        lease = client.lock("a-rather-long-name-of-a-lock").acquire()
        shown = screen(size=(20, 10))
        shown.expect("a-rathe")
        shown.resize(7, 5)
        shown.expect("q quit")
        with stage.frozen_store():
            shown.expect("no ans…")
        shown.type("q")
        assert shown.ended() == 0
        plain = re.sub(r"\033\[([0-9;?]*[ABD-JL-Za-z]|H)|\r|\n", "", shown.text)
        widths = [width(line) for line in plain.split("\033[2K")]
        assert max(widths) <= 20
        assert max(widths[-4:]) <= 7
        lease.release()


def test_a_store_that_does_not_answer_is_told_of(
    stage: Stage, screen: Callable[..., Screen]
) -> None:
    with rude_client(stage.url) as client:
        lease = client.lock("x").acquire()
        shown = screen()
        shown.expect(r"evil\u001b[31m")
        with stage.frozen_store():
            shown.expect("last update ")
            shown.expect("no answer for ")
        shown.expect("1 lock held")
        shown.type("q")
        assert shown.ended() == 0
        assert "\x9b" not in shown.text
        lease.release()


def test_a_terminal_that_is_gone(stage: Stage, screen: Callable[..., Screen]) -> None:
    shown = screen()
    shown.expect("nothing is held")
    shown.hang_up()
    eventually(lambda: shown.process.poll() is not None, "its end")
    assert shown.process.returncode in (0, 128 + signal.SIGHUP)


def test_a_terminal_that_can_show_no_picture(stage: Stage) -> None:
    with stage.locks.lock("x"):
        for words, term in ((["--json"], "xterm"), ([], "dumb")):
            shown = Screen(stage, *HOLDFAST, "watch", *words, TERM=term)
            try:
                shown.expect('"change": "granted", "name": "x"')
                shown.type(CTRL_C)
                assert shown.ended() == 130
                assert "\033" not in shown.text
            finally:
                shown.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "b"], "one word too many"),
        (["a\x07"], "control character"),
        (["--every", "0s"], "at least 100ms"),
        (["--every", "often"], "not a length of time"),
        (["--url", "nonsense://x"], "unknown kind of store"),
    ],
)
def test_mistakes(stage: Stage, words: list[str], said: str) -> None:
    found = stage.run("watch", *words)
    assert (found.status, found.out) == (2, "")
    assert said in found.err
    assert len(found.err.splitlines()) == 1


def test_stopped_from_outside(stage: Stage, screen: Callable[..., Screen]) -> None:
    with stage.locks.lock("first"):
        shown = screen()
        shown.expect("first")
        shown.process.send_signal(signal.SIGSTOP)
        eventually(lambda: is_stopped(shown.process.pid), "its stop")
        shown.process.send_signal(signal.SIGCONT)
        shown.expect("\033[?1049h")
        shown.expect("first")
        shown.type("q")
        assert shown.ended() == 0
