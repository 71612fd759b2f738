"""The library as a client of a service that asks for a token."""

from __future__ import annotations

import threading
from pathlib import Path
from traceback import format_exception

import pytest

import holdfast
from holdfast.service.security import token_file
from holdfast.service.security.bearer import generate
from service.running import eventually
from service.security.served import Served


def test_locks_that_the_token_covers(served: Served) -> None:
    token = served.token("hold", "lib:")
    with holdfast.connect(served.url, token=token) as locks:
        with locks.lock("lib:1", timeout=30) as lease:
            assert lease.token > 0
            assert locks.inspect("lib:1").held
        with pytest.raises(holdfast.LockError, match="may not"):
            locks.lock("other:1").try_acquire()
        with pytest.raises(holdfast.LockError, match="may not"):
            locks.force_release("lib:1")
        assert [state.name for state in locks.list()] == []


def test_a_waiter_is_woken(served: Served) -> None:
    """By its own session, although wake-ups are for one token."""
    token = served.token("hold", "lib:")
    with (
        holdfast.connect(served.url, token=token) as one,
        holdfast.connect(served.url, token=token) as two,
    ):
        first = one.lock("lib:2").acquire(timeout=30)
        got: list[int] = []

        def wait() -> None:
            with two.lock("lib:2").acquire(timeout=30) as lease:
                got.append(lease.token)

        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: one.inspect("lib:2").waiters, "it waits")
        first.release()
        thread.join(30)
        assert got
        assert got[0] > first.token


@pytest.mark.parametrize("text", ["{}", "{}" + "0" * 5000])
@pytest.mark.parametrize("by_variable", [False, True])
def test_a_token_in_place_of_its_file_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, by_variable: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    token, _ = generate()
    wrong = text.format(token)
    if by_variable:
        monkeypatch.setenv("HOLDFAST_TOKEN_FILE", wrong)
    with pytest.raises(holdfast.ConfigError, match="cannot be read") as raised:
        holdfast.connect("http://localhost", token_file=None if by_variable else wrong)
    assert token.rpartition("_")[2] not in "".join(format_exception(raised.value))


def test_a_token_that_is_wrong_or_revoked(served: Served) -> None:
    token = served.token("hold", "lib:")
    with pytest.raises(holdfast.LockError) as raised:
        holdfast.connect(served.url, token=token[:-1] + "_").lock("lib:3").try_acquire()
    assert token[20:-1] not in str(raised.value)
    with holdfast.connect(served.url, token=token) as locks:
        lease = locks.lock("lib:3", ttl=30).acquire(timeout=30)
        token_file.remove(str(served.token_file), [token.split("_")[1]])
        with pytest.raises(holdfast.LockError):
            locks.lock("lib:4").try_acquire()
        with pytest.raises(holdfast.LockError):
            lease.release()
