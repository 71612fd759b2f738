"""`holdfast demo`: two real processes, one of them frozen, without a fence and with one."""

from __future__ import annotations

import re
import signal
from functools import partial
from pathlib import Path

from cli.stage import Stage, eventually, is_stopped, lives
from holdfast.cli.demo import short
from stores import redis_server


def test_without_a_fence_it_breaks_and_with_one_it_does_not(stage: Stage) -> None:
    ended = stage.run("demo", "--ttl", "500ms")
    assert (ended.status, ended.err) == (0, "")
    without, fenced = ended.out.split("The same with a fence")
    assert "A wakes, writes 70: ACCEPTED" in without
    assert "REFUSED" not in without
    refused = re.search(r"A wakes, writes 70: REFUSED, …(\d+) < …(\d+)", fenced)
    assert refused is not None
    tokens = re.findall(r"([AB]) is granted token …(\d+)", fenced)
    assert [(who, digits) for who, digits in tokens[:2]] == [
        ("A", refused.group(1)),
        ("B", refused.group(2)),
    ]
    assert "without: 70 is left" in fenced
    assert "with:    120 is left" in fenced
    assert max(map(len, ended.out.splitlines())) <= 80
    assert "\033" not in ended.out  # no colours where nobody sees them


def test_a_terminal_that_knows_ascii_only(stage: Stage) -> None:
    env = stage.environment(PYTHONIOENCODING="ascii")
    ended = stage.run("demo", "--ttl", "300ms", env=env)
    assert ended.status == 0, ended.err
    assert ended.out.isascii()
    assert "REFUSED, ~" in ended.out


def test_nobody_stays_behind_frozen(stage: Stage) -> None:
    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        folder = stage.folder / "tmp"
        folder.mkdir(exist_ok=True)
        demo = stage.start("demo", "--ttl", "5s", env=stage.environment(TMPDIR=str(folder)))
        assert demo.stdout is not None
        seen = ""
        while "FROZEN" not in seen:
            line = demo.stdout.readline()
            assert line, seen
            seen += line
        found = re.search(r"A is process (\d+), B is (\d+)", seen)
        assert found is not None
        pids = [int(pid) for pid in found.groups()]
        eventually(partial(is_stopped, pids[0]), "A to be frozen")
        demo.send_signal(how)
        demo.wait(20)
        for pid in pids:
            eventually(partial(gone, pid), f"the end of {pid}")
        if how != signal.SIGKILL:
            assert demo.returncode == 128 + how
            assert list(folder.iterdir()) == []


def gone(pid: int) -> bool:
    return not lives(pid)


def test_help_and_mistakes(stage: Stage) -> None:
    assert "Usage: holdfast demo" in stage.run("demo", "--help").out
    ended = stage.run("demo", "now")
    assert (ended.status, "one word too many" in ended.err) == (2, True)
    assert stage.run("demo", "--ttl", "soon").status == 2
    ended = stage.run("demo", "--ttl", "0s")
    assert (ended.status, ended.out) == (2, "")
    assert "Traceback" not in ended.err


def test_a_store_that_cannot_be_had(stage: Stage) -> None:
    for url, status in (("redis://ada:hunter2@127.0.0.1:1", 69), ("nonsense://x", 2)):
        ended = stage.run("demo", "--url", url)
        assert ended.status == status
        assert "Traceback" not in ended.err
        assert "hunter2" not in ended.err
        assert ended.err.startswith("holdfast: ")


def test_the_password_of_a_store_is_not_in_the_list_of_processes(stage: Stage) -> None:
    server = redis_server()
    server("FLUSHALL")
    url = server.url.replace("redis://", "redis://default:hunter2@")
    demo = stage.start("demo", "--ttl", "5s", "--url", url)
    assert demo.stdout is not None
    seen = ""
    while "FROZEN" not in seen and (line := demo.stdout.readline()):
        seen += line
    found = re.search(r"A is process (\d+), B is (\d+)", seen)
    assert found is not None, demo.communicate()
    for pid in found.groups():
        assert b"hunter2" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    demo.send_signal(signal.SIGINT)
    demo.wait(20)


def test_tokens_of_one_demonstration_are_seen_to_rise() -> None:
    """Also if their last eight digits begin anew meanwhile, as they do every hundred seconds."""
    before, after = 1_794_722_399_999_000, 1_794_722_402_999_000
    assert short(before) < short(after)
    assert short(17) == "17"
