"""A lock for correctness: what it needs, on every store, and the guard that its leases offer."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import aio as holdfast
from holdfast.fences import FileFence, MemoryFence, SqlFence


async def test_correctness_needs_a_fence_and_a_store_that_can_carry_it(
    url: str, tmp_path: Path
) -> None:
    async with holdfast.connect(url) as locks:
        with pytest.raises(holdfast.GuaranteeError, match="protects="):
            locks.lock("x", purpose="correctness")
        with pytest.raises(holdfast.GuaranteeError, match="protects="):
            locks.rwlock("x", purpose="correctness")
        fence, row = FileFence(), tmp_path / "row 7"
        if "correctness" in locks.guarantees.safe_for:
            async with locks.lock("x", purpose="correctness", protects=fence) as lease:
                lease.guard(row)
            assert fence.highest(row) == lease.token
        else:
            with pytest.raises(holdfast.GuaranteeError, match="cannot"):
                locks.lock("x", purpose="correctness", protects=fence)


async def test_correctness_needs_a_fence_that_others_see(url: str) -> None:
    async with holdfast.connect(url) as locks:
        with pytest.raises(holdfast.GuaranteeError, match="this process's own"):
            locks.lock("x", purpose="correctness", protects=MemoryFence())
        with pytest.raises(holdfast.GuaranteeError, match=r"install\(connection\)"):
            locks.lock("x", purpose="correctness", protects=SqlFence())
        with pytest.raises(holdfast.GuaranteeError, match="this process's own"):
            locks.election("x", purpose="correctness", protects=MemoryFence())


async def test_a_leaders_term_has_a_guard(url: str) -> None:
    fence = MemoryFence()
    async with holdfast.connect(url) as locks:
        term = await locks.election("x", protects=fence).campaign()
        term.guard("row 7")
        assert fence.highest("row 7") == term.token
        await term.resign()


async def test_what_is_missing_is_said_at_once(url: str) -> None:
    async with holdfast.connect(url) as locks:
        with pytest.raises(holdfast.GuaranteeError) as caught:
            locks.semaphore("x", permits=2, purpose="correctness")
        said = str(caught.value)
        assert "protects=" in said
        assert ("a lock for each slot" in said) == (not locks.guarantees.slots)
        if locks.guarantees.slots and "correctness" in locks.guarantees.safe_for:
            locks.semaphore("x", permits=2, purpose="correctness", protects=FileFence())
        else:
            why = "cannot" if locks.guarantees.slots else "a lock for each slot"
            with pytest.raises(holdfast.GuaranteeError, match=why):
                locks.semaphore("x", permits=2, purpose="correctness", protects=FileFence())


async def test_each_grant_outranks_the_one_before(url: str) -> None:
    fence = MemoryFence()
    async with holdfast.connect(url) as locks:
        lock = locks.lock("x", protects=fence)
        first = await lock.acquire()
        first.guard("row 7")
        first.guard("row 7")  # the same holder's next write
        await first.release()
        second = await lock.acquire()
        first.guard("row 8")  # a fence sees what is shown to it, and nothing else
        second.guard("row 7")
        with pytest.raises(holdfast.StaleToken) as caught:
            first.guard("row 7")
        error = caught.value
        assert (error.resource, error.token, error.highest) == ("row 7", first.token, second.token)
        assert (error.name, error.owner, error.reason) == ("x", first.owner, "stale")


async def test_a_forced_release_shuts_the_holder_out(url: str) -> None:
    fence = MemoryFence()
    async with holdfast.connect(url) as locks:
        lock = locks.lock("x", protects=fence)
        first = await lock.acquire()
        first.guard("row 7")
        assert await locks.force_release("x")
        second = await lock.acquire(timeout=10.0)
        second.guard("row 7")
        with pytest.raises(holdfast.StaleToken):
            first.guard("row 7")


async def test_writers_are_remembered_and_readers_compared(url: str) -> None:
    fence = MemoryFence()
    async with holdfast.connect(url) as locks:
        book = locks.rwlock("book", protects=fence)
        early = await book.read().acquire()
        assert early.shared
        early.guard("page")
        assert fence.highest("page") == 0
        await early.release()
        async with book.write() as writer:
            assert not writer.shared
            writer.guard("page")
        async with book.read() as one, book.read() as other:
            other.guard("page")
            one.guard("page")
            with pytest.raises(holdfast.StaleToken):
                early.guard("page")
        assert fence.highest("page") == writer.token


async def test_a_lock_has_the_same_identity_for_all_and_no_other_has_it(url: str) -> None:
    ours, again = holdfast.connect(url), holdfast.connect(url)
    theirs = holdfast.connect(url, namespace="a/b")
    async with ours, again, theirs:
        first = await ours.lock("x").acquire()
        await first.release()
        second = await again.lock("x").acquire()
        behind = ours.guarantees.store.rpartition(" (")[2].rstrip(")")  # of `http (redis)`
        store = behind.partition("+")[0]
        assert second.lock_id == first.lock_id == f"{store}:holdfast/x"
        other = await theirs.lock("x").acquire()
        assert other.lock_id == f"{store}:a%2Fb/x"
        assert (await ours.lock("y").acquire()).lock_id != first.lock_id


async def test_a_lease_without_a_fence_has_no_guard(url: str) -> None:
    async with holdfast.connect(url) as locks:
        async with locks.lock("x") as lease:
            assert lease.kind == "lock"
            with pytest.raises(holdfast.GuaranteeError, match="protects="):
                lease.guard("row 7")
        with pytest.raises(holdfast.ConfigError, match="must be a fence"):
            locks.semaphore("x", permits=2, protects=object())  # type: ignore[arg-type]
