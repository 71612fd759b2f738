"""`holdfast doctor`: what it shows, its exit statuses, and the page about it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.screen import Screen
from cli.stage import HOLDFAST, Stage
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import RedlockNodes

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
COLOURS = re.compile(r"\033\[[0-9;]*m")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
    try:
        yield server
    finally:
        server.stop()


def numberless(text: str) -> str:
    return re.sub(r"\d+(\.\d+)*", "N", text)


def test_the_example_in_the_docs(stage: Stage, server: RedisServer) -> None:
    ended = stage.run("doctor", "--url", server.url.removesuffix("/0"))
    assert ended.status == 1, ended
    example = re.search(r"^```\n\$ holdfast doctor.*?\n(.*?)\n```", PAGE.read_text(), re.M | re.S)
    assert example is not None
    assert numberless(ended.out.rstrip("\n")) == numberless(example[1])
    assert ended.err == ""


def test_shell_examples_in_the_docs(stage: Stage) -> None:
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    text = PAGE.read_text().replace("sqlite:///var/lib/app/", f"sqlite://{stage.folder}/")
    for script in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        env = stage.environment(PATH=path)
        ended = stage.run(script, program=["bash", "-euc"], env=env)
        assert ended.status == 0, ended


def test_statuses(stage: Stage, server: RedisServer) -> None:
    stage.locks.inspect("x")
    ended = stage.run("doctor")
    assert (ended.status, ended.err) == (0, ""), ended
    assert ended.out.startswith(f"{stage.url}\n\n")
    server("CONFIG", "SET", "maxmemory-policy", "noeviction")
    ended = stage.run("doctor", "--url", server.url)
    assert ended.status == 0
    assert ended.out.endswith("\nNothing is wrong, 1 warning.\n")
    server("CONFIG", "SET", "appendonly", "yes")
    server("CONFIG", "SET", "appendfsync", "always")
    ended = stage.run("doctor", "--url", server.url)
    assert ended.status == 0
    assert ended.out.endswith("\nNothing is wrong.\n")
    server.kill()
    ended = stage.run("doctor", "--url", server.url)
    assert ended.status == 69
    assert ended.err.startswith("holdfast: the store cannot be used: ")
    assert ended.out == ""
    for words in (["--frob"], ["extra"], ["--timeout", "soon"], ["--timeout", "0s"]):
        ended = stage.run("doctor", *words)
        assert ended.status == 2
        assert ended.err.startswith("holdfast: ")
    assert stage.run("doctor", "--url", "frob://x").status == 2
    assert stage.run("doctor", "--namespace", "").status == 2


def test_json(stage: Stage, server: RedisServer) -> None:
    ended = stage.run("doctor", "--url", server.url, "--json")
    assert ended.status == 1
    (line,) = ended.out.splitlines()
    findings = json.loads(line)
    assert {"level", "check", "what", "why", "mend", "server"} == set(findings[0])
    assert [one["check"] for one in findings if one["level"] == "wrong"] == ["eviction"]


def test_findings_of_several_servers_are_shown_as_one(stage: Stage) -> None:
    nodes = RedlockNodes(3)
    try:
        for node in nodes.nodes[1:]:
            node("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        places = [f"127.0.0.1:{node.port}" for node in nodes.nodes]
        out = " ".join(stage.run("doctor", "--url", nodes.url).out.split())
        assert f"ok {places[0]} and 2 others: it is " in out
        assert f"ok {places[0]}: it evicts no keys" in out
        assert f"warning {places[1]}, {places[2]}: it would evict keys" in out
        assert out.count("NTP") + out.count("it would evict keys") == 1
        found = json.loads(stage.run("doctor", "--url", nodes.url, "--json").out)
        evicting = [one["server"] for one in found if one["check"] == "eviction"]
        assert evicting == places
    finally:
        nodes.stop()


def test_credentials_are_never_shown(stage: Stage) -> None:
    server = RedisServer(password="hidden")
    try:
        for word in ("hidden", "wrong-one"):
            url = f"redis://default:{word}@127.0.0.1:{server.port}/0"
            ended = stage.run("doctor", "--url", url)
            assert ended.status == (0 if word == "hidden" else 2)
            assert word not in ended.out + ended.err
    finally:
        server.stop()


def test_a_store_that_nobody_named(stage: Stage) -> None:
    env = stage.environment()
    del env["HOLDFAST_URL"]
    ended = stage.run("doctor", env=env)
    assert (ended.status, ended.err) == (0, "")
    assert "(no store was named)" in " ".join(ended.out.split())
    assert not (stage.folder / "state").exists()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_on_a_terminal(stage: Stage, server: RedisServer, columns: int) -> None:
    words = ["doctor", "--url", server.url]
    shown = Screen(stage, *HOLDFAST, *words, size=(columns, 24), TERM="xterm")
    try:
        assert shown.ended() == 1
    finally:
        shown.close()
    plain = COLOURS.sub("", shown.text)
    assert plain != shown.text
    lines = plain.split("\r\n")
    assert max(map(len, lines)) <= min(columns, 100)
    assert "wrong    it evicts keys" in plain
    for line in lines[2:-3]:
        assert re.match(r"(ok|note|warning|wrong| ) ", line), line
    bare = Screen(stage, *HOLDFAST, *words, size=(columns, 24), TERM="xterm", NO_COLOR="1")
    try:
        assert bare.ended() == 1
        assert not COLOURS.search(bare.text)
    finally:
        bare.close()
