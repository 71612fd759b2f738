"""The manual of every command: it has the options that the command takes, in 80 columns."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from cli.stage import Stage
from holdfast.cli import COMMANDS
from holdfast.cli.arguments import STORE_OPTIONS
from holdfast.cli.manuals import help_of, manual_of


@pytest.mark.parametrize("command", list(COMMANDS))
def test_the_manual_has_the_options_of_the_command(command: str) -> None:
    module = import_module(f"holdfast.cli.{COMMANDS[command][0]}")
    taken = getattr(module, "OPTIONS", STORE_OPTIONS)
    written = [words for _, options in manual_of(command).groups for words in options]
    assert sorted(words.split()[0] for words in written) == sorted(taken)
    for words in written:
        assert (len(words.split()) > 1) == bool(taken[words.split()[0]]), words


@pytest.mark.parametrize("command", list(COMMANDS))
def test_help(stage: Stage, command: str) -> None:
    ended = stage.run(command, "--help")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == help_of(command)
    assert ended.out.startswith(f"Usage: holdfast {command}")
    assert max(map(len, ended.out.splitlines())) <= 80
    assert re.search(rf"Examples:\n  holdfast {command}", ended.out)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_no_word_is_broken_over_two_lines(command: str) -> None:
    lines = help_of(command).splitlines()
    assert not [line for line in lines if re.search(r"[a-z]-$", line)]
    usage = lines[: lines.index("")]
    assert all(line.count("[") == line.count("]") for line in usage)


@pytest.mark.parametrize("command", ["man", "completion", "stores"])
def test_a_command_without_a_store_does_not_speak_of_one(stage: Stage, command: str) -> None:
    text = help_of(command)
    assert "--url" not in text
    assert not re.search(r"^  69 ", text, re.MULTILINE)
    operands = ["bash"] if command == "completion" else []
    # An alias may have it, so it is no mistake.
    assert stage.run("--url", "memory://", command, *operands).status == 0
