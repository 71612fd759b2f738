"""Messages that name what was typed; one status and one wording for a store that refuses a user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from cli.stage import Stage
from holdfast.chaos.servers.redis import RedisServer
from holdfast.cli.wording import ADVICE, as_typed

SOURCE = Path(holdfast.__file__).parent
PYTHON = re.compile(
    r"\w\(\)|connect\(|token_above|permits|max_ttl=\d+ \(|multi|\bperiod must|the label"
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "x", "-n", "0", "--", "true"], "-n must be from 1 to 2147483647, not 0"),
        (["run", "x", "-n", "9" * 30, "--", "true"], "-n must be from 1 to 2147483647, not 999"),
        (["run", "x", "-n", "some", "--", "true"], "-n needs a whole number"),
        (["run", "x", "--ttl", "0", "--", "true"], "--ttl must be more than 0 seconds"),
        (["run", *map(str, range(200)), "--", "true"], "at most 128 NAMEs can be taken at once"),
        (["once", "x", "--every", "0", "--", "true"], "--every must be more than 0 seconds"),
        (["lead", "x", "--value", "a\nb", "--", "true"], "the text of --value has a control"),
        (["lead", "x", "--value", "a" * 999, "--", "true"], "the text of --value has 999 bytes"),
        (["break", "x", "--yes", "--token-above", "9" * 20], "--token-above takes a token up to"),
        (
            ["ls", "--url", "http://ada:pw@h"],
            "takes a token; name its file in $HOLDFAST_TOKEN_FILE.",
        ),
        (
            ["once", "x", "--every", "1d", "--url", "redlock://a:1,b:1,c:1", "--", "true"],
            "end the URL of the store with ?max_ttl=86400, in all clients (a node",
        ),
        (["ls", "--url", "sqlite:relative.db"], "URL: there is no // after sqlite:; write"),
        (["ls", "--url", "s3cret:relative.db"], "URL: it has no scheme; write"),
        (["schema", "sqlite:///x"], "is made with its tables on first use"),
        (["schema", "redis://"], "redis:// has no tables that somebody would have to create"),
    ],
)
def test_a_message_names_what_was_typed(stage: Stage, words: list[str], said: str) -> None:
    ended = stage.run(*words)
    assert ended.status == 2, ended
    assert said in ended.err
    assert not PYTHON.search(ended.err)
    assert "s3cret" not in ended.err


def test_a_fence_says_what_to_do_at_a_command_line(stage: Stage) -> None:
    now = str(stage.locks.inspect("x").token + 10**15)
    assert stage.run("fence", "check", "r", now).status == 0
    ended = stage.run("fence", "check", "r", "17")
    assert ended.status == 1
    assert "holdfast break NAME --token-above N" in ended.err
    assert "reset()" not in ended.err


def test_all_advice_is_still_given() -> None:
    """A text of the library that was reworded must be reworded in the table, too."""
    files = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "cli"]
    texts = [re.sub(r'"\s+f?"', "", path.read_text()) for path in files]
    for pattern, words in ADVICE:
        found = [text for text in texts if re.search(pattern.replace(r"[\d.e+]+", r"[^ ]+"), text)]
        assert found, pattern
        assert "()" not in words
    assert as_typed("reset() the fence") == "let a program reset the fence"


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (["~*", "&*", "-@all"], ()),
        (["~other*", "&*", "+@all"], ()),
        (["~*", "&*", "+@all", "-@read"], ()),
        (["~*", "&*", "+@all", "-evalsha", "-eval"], ()),
        (["~*", "&*", "+@all", "-@write"], ("ls", "show")),
    ],
)
def test_a_user_who_may_not_is_told_the_same_by_all(
    stage: Stage, redis: RedisServer, rules: list[str], allowed: tuple[str, ...]
) -> None:
    redis("ACL", "SETUSER", "app", "on", ">word", *rules)
    env = stage.environment(HOLDFAST_URL=f"redis://app:word@127.0.0.1:{redis.port}/0")
    commands = ["ls", "show x", "break x --yes", "run y -- true", "fence check r 1", "watch --json"]
    with holdfast.connect(redis.url) as locks, locks.lock("x", ttl=60.0):
        for command in commands:
            verb = command.split()[0]
            if verb in allowed:
                assert stage.run(*command.split(), env=env).status == 0
            elif verb != "watch" or not allowed:
                ended = stage.run(*command.split(), env=env)
                assert ended.status == 2, (command, ended)
                assert " does not let us in" in ended.err
                assert "check the user, the password and the user's permissions. See" in ended.err
                assert len(ended.err.splitlines()) == 1
                assert "unreachable" not in ended.err


def test_a_store_that_is_full_is_not_said_to_be_unreachable(
    stage: Stage, redis: RedisServer
) -> None:
    redis("CONFIG", "SET", "maxmemory", "1")
    env = stage.environment(HOLDFAST_URL=redis.url)
    ended = stage.run("run", "x", "--", "true", env=env)
    assert ended.status == 69
    assert "the store cannot be used, so the command was not run: " in ended.err
    assert "out of memory" in ended.err
    assert "unreachable" not in ended.err
