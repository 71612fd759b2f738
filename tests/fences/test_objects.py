"""Objects: bytes that come back, servers that ignore conditions, and what else an object has."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import MemoryStore

import holdfast
from holdfast.fences import ObjectFence
from stores import azure_server, gcs_server, s3_server


@pytest.fixture
def store() -> Any:
    return s3_server().bucket(f"b{os.urandom(8).hex()}")


def test_the_object_is_plain(store: Any) -> None:
    fence = ObjectFence(store)
    fence.put("report.csv", b"a,b\n", 33, attributes={"Content-Type": "text/csv", "mine": "x"})
    found = obstore.get(store, "report.csv")
    assert bytes(found.bytes()) == b"a,b\n"
    assert found.attributes["Content-Type"] == "text/csv"
    assert found.attributes["holdfasttoken"] == "33"
    fence.put("report.csv", b"c,d\n", 34)  # its own attributes stay
    assert obstore.get(store, "report.csv").attributes["mine"] == "x"


class Frozen(ObjectFence):
    """One that stands still between the look and the put, until others have written."""

    meanwhile: Any = None

    def _try_put(self, *args: Any) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return (yield from super()._try_put(*args))


def test_a_put_that_was_overtaken_is_judged_again(store: Any) -> None:
    fence, late = ObjectFence(store), Frozen(store)
    fence.put("x", b"before", 33)
    late.meanwhile = lambda: fence.put("x", b"newer", 34)
    with pytest.raises(holdfast.StaleToken):
        late.put("x", b"late", 33)
    assert fence.get("x") == b"newer"
    late.meanwhile = lambda: fence.put("x", b"newest", 34)
    late.put("x", b"the same holder's", 34)
    assert (fence.get("x"), fence.highest("x")) == (b"the same holder's", 34)


def test_bytes_that_come_back_would_hide_a_newer_token(store: Any) -> None:
    """On S3 a version is the hash of the bytes: written again, they are the same version."""
    fence, late = ObjectFence(store), Frozen(store)
    fence.put("x", b"off", 33)

    def flip() -> None:
        with pytest.raises(holdfast.GuaranteeError, match="stamp=True"):
            fence.put("x", b"off", 34)
        fence.put("x", b"on", 34)
        with pytest.raises(holdfast.GuaranteeError, match="stamp=True"):
            fence.put("x", b"off", 34)

    late.meanwhile = flip
    with pytest.raises(holdfast.StaleToken):
        late.put("x", b"late", 33)
    assert (fence.get("x"), fence.highest("x")) == (b"on", 34)
    fence.put("x", b"on", 34)  # the same holder, the same bytes: nothing to do


def test_a_stamp_makes_every_write_another_version(store: Any) -> None:
    fence, late = ObjectFence(store, stamp=True), Frozen(store, stamp=True)
    fence.put("x", b"off", 33)

    def flip() -> None:
        for value in (b"off", b"on", b"off"):
            fence.put("x", value, 34)

    late.meanwhile = flip
    with pytest.raises(holdfast.StaleToken):
        late.put("x", b"late", 33)
    assert fence.get("x") == b"off"
    assert bytes(obstore.get(store, "x").bytes()).endswith(b"\noff")


def test_an_object_that_was_there_before(store: Any) -> None:
    obstore.put(store, "x", b"old")
    fence = ObjectFence(store)
    with pytest.raises(holdfast.GuaranteeError, match="has no mark"):
        fence.put("x", b"new", 33)
    assert (fence.get("x"), fence.reset("x", by="a test")) == (b"old", 0)
    with pytest.raises(holdfast.GuaranteeError, match="bytes"):
        fence.put("x", b"old", 33)
    fence.put("x", b"new", 33)
    with pytest.raises(holdfast.StaleToken):
        fence.put("x", b"newer", 32)


def unique(kind: str) -> Any:
    if kind == "memory":
        return MemoryStore()
    server = azure_server() if kind == "azure" else gcs_server()
    return server.bucket(f"b{os.urandom(8).hex()}")


@pytest.mark.parametrize("kind", ["azure", "gcs", "memory"])
def test_a_store_whose_versions_are_unique_takes_any_bytes(kind: str) -> None:
    store = unique(kind)
    fence, late = ObjectFence(store), Frozen(store)
    fence.put("x", b"off", 33)

    def flip() -> None:
        for value in (b"off", b"on", b"off"):
            fence.put("x", value, 34)

    late.meanwhile = flip
    with pytest.raises(holdfast.StaleToken):
        late.put("x", b"late", 33)
    assert fence.get("x") == b"off"
    fence.verify()


@pytest.mark.parametrize("kind", ["azure", "gcs", "s3"])
def test_of_many_conditional_puts_at_once_one_succeeds(kind: str) -> None:
    """The fence stands on this: not all emulators do it."""
    store = s3_server().bucket(f"b{os.urandom(8).hex()}") if kind == "s3" else unique(kind)

    def put(mode: Any, number: int) -> int:
        try:
            obstore.put(store, "x", str(number).encode(), mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return 0
        return 1

    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(put, ["create"] * 20, range(20))) == 1
        for turn in range(1, 4):
            meta = obstore.head(store, "x")
            seen = {name: meta[name] for name in ("e_tag", "version") if meta[name]}
            assert sum(pool.map(put, [seen] * 20, range(20 * turn, 20 * turn + 20))) == 1


def test_an_answer_that_was_lost_is_no_refusal(store: Any) -> None:
    """The library repeats a request; the repetition finds its own work done."""

    class Unheard(ObjectFence):
        def _try_put(self, *args: Any) -> Any:
            yield from super()._try_put(*args)
            return False

    for single_use in (False, True):
        Unheard(store, single_use=single_use).put(f"x{single_use}", b"a", 33)
        assert ObjectFence(store).highest(f"x{single_use}") == 33


def test_a_long_name_of_a_lock_fits_into_the_metadata(store: Any) -> None:
    fence = ObjectFence(store)
    with holdfast.connect("memory://", namespace="n" * 900) as locks:
        lease = locks.lock("ключ" * 100).acquire()
        other = locks.lock("ключ" * 99).acquire()
        fence.put("x", b"a", lease)
        fence.put("x", b"b", lease)
        with pytest.raises(holdfast.StaleToken, match="belongs to"):
            fence.put("x", b"c", other)


@pytest.mark.parametrize(
    ("ignored", "said"),
    [
        ("IF_NONE_MATCH", "ignores that an object is to be created only"),
        ("IF_MATCH", "ignores the condition of an update"),
        ("X_AMZ_META", "does not keep an object's metadata"),
    ],
)
def test_a_careless_server_is_found_out(ignored: str, said: str) -> None:
    name = f"b{os.urandom(8).hex()}"
    with s3_server().careless(ignored) as url:
        careless = s3_server().bucket(name, url)
        with pytest.raises(holdfast.GuaranteeError, match=said):
            ObjectFence(careless).verify()
        assert [one["path"] for batch in obstore.list(careless) for one in batch] == []


def test_a_store_without_conditional_put_is_refused(tmp_path: Any) -> None:
    from obstore.store import LocalStore

    with pytest.raises(holdfast.GuaranteeError, match="no conditional put"):
        ObjectFence(LocalStore(tmp_path)).verify()


def test_without_the_library_it_says_which_extra() -> None:
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "from holdfast.fences import ObjectFence\n"
        "try: ObjectFence(None)\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'holdfast-locks[objects]'" in done.stdout


def test_the_guard_of_a_lease(store: Any) -> None:
    with holdfast.connect("memory://") as locks:
        first = locks.lock("x", protects=ObjectFence(store)).acquire()
        first.guard.put("x", b"a")
        first.guard("x")  # nothing to remember that is not there yet
        with pytest.raises(AttributeError, match="ObjectFence has no append"):
            first.guard.append("x")


def test_a_token_is_remembered_without_a_change_of_the_data(store: Any) -> None:
    with pytest.raises(holdfast.GuaranteeError, match="put an empty one"):
        ObjectFence(store).guard("x", 33)
    ObjectFence(store).put("x", b"a", 33, attributes={"Content-Type": "text/csv"})
    with pytest.raises(holdfast.GuaranteeError, match="stamp=True"):
        ObjectFence(store).guard("x", 34)  # the bytes' hash would not change
    fence, late = ObjectFence(store, stamp=True), Frozen(store, stamp=True)
    late.meanwhile = lambda: fence.guard("x", 34)
    with pytest.raises(holdfast.StaleToken):
        late.put("x", b"late", 33)
    assert (fence.get("x"), fence.highest("x")) == (b"a", 34)
    assert obstore.get(store, "x").attributes["Content-Type"] == "text/csv"
