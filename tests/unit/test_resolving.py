"""Names are looked up in threads that nobody has to wait for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from holdfast.stores import resolving


@pytest.fixture(autouse=True)
def no_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the test begin without what others left behind."""
    monkeypatch.setattr(resolving, "_lookups", {})


HANGING = """
import asyncio, socket, threading
import holdfast, holdfast.aio

def hang(*args, **options):
    threading.Event().wait()

socket.getaddrinfo = hang

def blocking():
    try:
        holdfast.connect("redis://nowhere.test").lock("x").try_acquire(timeout=0.1)
    except holdfast.BackendUnavailable as error:
        assert "nowhere.test" in str(error), error

async def in_a_loop():
    try:
        await holdfast.aio.connect("redis://nowhere.test").lock("x").try_acquire(timeout=0.1)
    except holdfast.BackendUnavailable as error:
        assert "nowhere.test" in str(error), error
"""


@pytest.mark.parametrize("call", ["blocking()", "asyncio.run(in_a_loop())"])
def test_a_process_ends_though_a_lookup_hangs(call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HANGING + call],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


FORKED = """
import os, signal, sys, threading
from importlib.util import spec_from_loader
from holdfast.stores import resolving

importing = threading.Event()

class Slow:
    def find_spec(self, name, *rest):
        return spec_from_loader(name, self) if name == "encodings.idna" else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        importing.set()
        threading.Event().wait()

sys.meta_path.insert(0, Slow())
threading.Thread(target=lambda: "a.test".encode("idna"), daemon=True).start()
assert importing.wait(60)
pid = os.fork()
if not pid:
    signal.alarm(20)
    resolving.look_up("127.0.0.1", 1)
    resolving.look_up("localhost", 1)
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0)
"""


def test_a_child_that_was_forked_while_a_codec_was_imported_does_not_wait_for_it() -> None:
    """A thread of the parent looks a name up for the first time; the import never ends in the child."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_needs_no_thread(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "start_new_thread", None)
    (place,) = resolving.resolve(host, 7, 0.0, time.monotonic)
    assert place.where[:2] == (host, 7)


def test_a_name_that_nobody_knows_is_an_error_each_time() -> None:
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            resolving.resolve("nobody.invalid", 7, time.monotonic() + 60.0, time.monotonic)
    assert not resolving._lookups


def test_a_name_that_cannot_be_asked_for_is_an_error() -> None:
    with pytest.raises(OSError, match="no name of a host"):
        resolving.resolve("\xe4" * 70, 7, time.monotonic() + 60.0, time.monotonic)


def test_where_no_thread_can_be_started_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(resolving, "start_new_thread", none)
    with pytest.raises(OSError, match="can't start new thread"):
        resolving.resolve("localhost", 7, time.monotonic() + 60.0, time.monotonic)
    assert not resolving._lookups


class Held:
    """A resolver that is held up, and answers with an address of its own each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.calls = 0
        monkeypatch.setattr(resolving, "look_up", self)

    def __call__(self, host: str, port: int, flags: int = 0) -> list[resolving.Place]:
        self.calls += 1
        call = self.calls
        self.go_on.wait(60.0)
        return [resolving.Place(socket.AF_INET, (f"10.0.0.{call}", port))]


def leave_behind(held: Held) -> None:
    """Has a lookup end after its only caller has given up."""
    with pytest.raises(TimeoutError, match=r"slow\.test"):
        resolving.resolve("slow.test", 7, time.monotonic() + 0.01, time.monotonic)
    held.go_on.set()
    limit = time.monotonic() + 20.0
    while not all(lookup.done for lookup in resolving._lookups.values()):
        assert time.monotonic() < limit
        time.sleep(0.001)


def test_what_is_found_too_late_serves_the_next_caller_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    leave_behind(held)
    found = [resolving.resolve("slow.test", 7, time.monotonic() + 60.0, time.monotonic)]
    found += [resolving.resolve("slow.test", 7, time.monotonic() + 60.0, time.monotonic)]
    assert [place.where[0] for (place,) in found] == ["10.0.0.1", "10.0.0.2"]
    assert not resolving._lookups


def test_what_was_found_long_ago_serves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    leave_behind(held)
    monkeypatch.setattr(resolving, "LATE_KEPT", -1.0)
    (place,) = resolving.resolve("slow.test", 7, time.monotonic() + 60.0, time.monotonic)
    assert place.where[0] == "10.0.0.2"


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    with pytest.raises(TimeoutError):
        resolving.resolve("slow.test", 7, time.monotonic() + 0.01, time.monotonic)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            held.go_on = threading.Event()
            held.go_on.set()
            resolving.resolve("slow.test", 7, time.monotonic() + 30.0, time.monotonic)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    leave_behind(held)
