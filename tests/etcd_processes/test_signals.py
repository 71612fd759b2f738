"""Signals whose handlers return: none of them prolongs a wait of the blocking wire."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from holdfast.stores.etcd.address import Address
from holdfast.stores.etcd.wire.failures import Failure
from holdfast.stores.etcd.wire.messages import RANGE
from holdfast.stores.etcd.wire.threads import Wire
from holdfast.stores.resolving import Lookup
from servers.http2 import Http2Server


@pytest.fixture
def signals() -> Iterator[None]:
    """A signal every five milliseconds."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("what", ["reply", "handshake", "name"])
def test_a_deadline_comes_whatever_signals_do(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Http2Server(lambda *_: True)
    silent = socket.create_server(("127.0.0.1", 0))
    tls = None
    endpoint = server.endpoint
    if what == "handshake":
        tls = ssl.create_default_context()
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
    elif what == "name":
        endpoint = f"a-member.example:{server.port}"
        monkeypatch.setattr(Lookup, "_run", lambda lookup: None)
    wire = Wire(Address((endpoint,), "", "", tls))
    began = time.monotonic()
    with pytest.raises(Failure, match="DEADLINE"):
        wire.call(RANGE, b"", 0.7)
    assert 0.5 < time.monotonic() - began < 20.0
    wire.close()
    silent.close()
    server.close()
