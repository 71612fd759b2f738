"""Signals to `run`, `lead` and `once`, on every store that other processes can see."""

from __future__ import annotations

import signal

import pytest

import holdfast
from cli.stage import Process, Stage, ended, eventually

TTL = "60s"
"""Longer than any test waits: what is free before was given back."""


def start(stage: Stage, url: str, *words: str) -> Process:
    return stage.start(*words, env=stage.environment(HOLDFAST_URL=url))


@pytest.mark.parametrize("words", [["run", "x"], ["lead", "x"], ["once", "x", "--every", "30s"]])
@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_a_signal_ends_the_command_and_frees_the_lock(
    stage: Stage, url: str, words: list[str], name: str
) -> None:
    number = getattr(signal, f"SIG{name}")
    # By `exec`: a shell that is just starting a command drops an interrupt that comes then.
    command = "echo > on; exec sleep 60"
    with holdfast.connect(url) as locks:
        process = start(stage, url, *words, "--ttl", TTL, "--", "sh", "-c", command)
        stage.wrote("on")
        assert locks.inspect("x").held
        process.send_signal(number)
        answer = ended(process)
        assert answer.status == 128 + number
        assert "Traceback" not in answer.err
        eventually(lambda: not locks.inspect("x").held)


@pytest.mark.parametrize("words", [["run", "x"], ["lead", "x"]])
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
def test_a_signal_ends_the_wait(stage: Stage, url: str, words: list[str], name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    with holdfast.connect(url) as locks:
        held = locks.election("x").campaign() if words[0] == "lead" else locks.lock("x").acquire()
        process = start(stage, url, *words, "--ttl", TTL, "--", "touch", "ran")
        eventually(lambda: locks.inspect("x").waiters)
        process.send_signal(number)
        answer = ended(process)
        assert answer.status == 128 + number
        assert "Traceback" not in answer.err
        eventually(lambda: not locks.inspect("x").waiters)
        held.release()
        assert locks.lock("y").try_acquire() is not None
    assert not (stage.folder / "ran").exists()
