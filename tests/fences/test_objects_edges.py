"""Objects: data that looks like a stamp, a write whose answer was lost on the way."""

from __future__ import annotations

import os
from typing import Any

import pytest
from obstore.store import MemoryStore

import holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.fences import ObjectFence
from holdfast.versioned import ObjectVersioned
from stores import s3_server


def test_data_that_begins_like_a_stamp_is_data() -> None:
    fence = ObjectFence(MemoryStore())
    for data in (b"holdfast-stamp \nb", b"holdfast-stamp of approval\nb", b"holdfast-stamp"):
        fence.put("x", data, 34)
        assert fence.get("x") == data
    stamped = ObjectFence(MemoryStore(), stamp=True)
    stamped.put("x", b"holdfast-stamp \nb", 34)
    assert stamped.get("x") == b"holdfast-stamp \nb"


@pytest.fixture
def proxy() -> Any:
    made = Proxy(int(s3_server().url.rpartition(":")[2]))
    yield made
    made.close()


def through(proxy: Proxy) -> Any:
    return s3_server().bucket(f"b{os.urandom(8).hex()}", f"http://127.0.0.1:{proxy.port}")


class Cut(ObjectFence):
    """Whose next put arrives, and is not answered."""

    proxy: Any = None

    def _try_put(self, *args: Any) -> Any:
        if self.proxy is not None:
            self.proxy.reset_once, self.proxy = True, None
        return (yield from super()._try_put(*args))


def test_an_error_instead_of_an_answer_may_be_tried_again(proxy: Proxy) -> None:
    """Nobody knows whether it was done. The same holder may try again; an older one does not pass."""
    fence = Cut(through(proxy))
    fence.put("x", b"a", 33)
    fence.proxy = proxy
    with pytest.raises(Exception, match="PUT"):
        fence.put("x", b"b", 34)
    fence.put("x", b"b", 34)
    assert (fence.get("x"), fence.highest("x")) == (b"b", 34)
    with pytest.raises(holdfast.StaleToken):
        fence.put("x", b"c", 33)


def test_a_change_whose_answer_was_lost_is_not_made_twice(proxy: Proxy) -> None:
    register = ObjectVersioned(through(proxy))
    register.put("x", b"1", None)
    calls = 0

    def change(data: bytes) -> str:
        nonlocal calls
        calls += 1
        proxy.reset_once = calls == 1
        return str(int(data) + 1)

    with pytest.raises(Exception, match="PUT"):
        register.update("x", change)
    assert calls == 1
    assert register.get("x").value in (b"1", b"2")
