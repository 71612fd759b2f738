"""`holdfast run -n 3`: as many at once as there are permits, on every store that can."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import holdfast
from cli.stage import HOLDFAST, Stage


def test_no_more_than_its_permits(stage: Stage, url: str) -> None:
    env = stage.environment(HOLDFAST_URL=url)
    with holdfast.connect(url) as locks, ExitStack() as stack:
        pool = locks.semaphore("pool", permits=3)
        stack.enter_context(pool.acquire())
        ours = stack.enter_context(pool.acquire())
        show = 'echo "$HOLDFAST_LOCK ${HOLDFAST_SLOT-none} ${HOLDFAST_LOCK_ID-none}"'
        ended = stage.run("run", "pool", "-n", "3", "--no-wait", "--", "sh", "-c", show, env=env)
        assert ended.status == 0, ended
        name, slot, identity = ended.out.split()
        assert name == "pool"
        if ours.slot is not None:
            assert slot in ("0", "1", "2")
            assert f"#{slot}/pool" in identity
        else:
            assert (slot, identity) == ("none", "none")
        stack.enter_context(pool.acquire())
        ended = stage.run("run", "pool", "-n3", "--no-wait", "--", "touch", "ran", env=env)
        assert ended.status == 75
        assert not (stage.folder / "ran").exists()


def test_a_slot_is_fenced(stage: Stage) -> None:
    script = f'{" ".join(HOLDFAST)} fence check "r-$HOLDFAST_SLOT" "$HOLDFAST_TOKEN"'
    for _ in range(3):
        ended = stage.run("run", "pool", "-n", "2", "--", "sh", "-c", script)
        assert (ended.status, ended.err) == (0, "")


def test_the_slot_of_a_command_around_us_is_not_ours(stage: Stage) -> None:
    inner = f"{' '.join(HOLDFAST)} run x -- sh -c 'echo ${{HOLDFAST_SLOT-none}}'"
    ended = stage.run("run", "pool", "-n", "2", "--", "sh", "-c", inner)
    assert (ended.status, ended.out) == (0, "none\n")


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", "", "99999999999", "٣"])
def test_what_is_no_number_of_permits(stage: Stage, number: str) -> None:
    ended = stage.run("run", "x", f"-n={number}", "--", "touch", "ran")
    assert ended.status == 2, ended
    assert "whole number" in ended.err or "-n must be from 1" in ended.err
    assert not (stage.folder / "ran").exists()


def test_another_number_than_the_others_gave(stage: Stage) -> None:
    with stage.locks.semaphore("pool", permits=3).acquire():
        ended = stage.run("run", "pool", "-n", "2", "--no-wait", "--", "touch", "ran")
        assert ended.status == 2
        assert "pool" in ended.err
