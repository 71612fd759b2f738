"""What is said of a server that cannot be reached, on every store and in both worlds."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from holdfast.refusals import reason


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        # asyncio's own words
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"),
            "Connection refused",
        ),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "Name or service not known",
        ),
        # on BSD and macOS
        (socket.gaierror(8, "nodename nor servname provided"), "nodename nor servname provided"),
        (OSError("it has no address"), "it has no address"),
        (TimeoutError("it did not answer in time"), "it did not answer in time"),
        (ssl.SSLError(1, "[SSL] wrong version"), "[SSL] wrong version"),
        (ValueError("nonsense"), "nonsense"),
    ],
)
def test_a_reason_is_told_in_words(error: Exception, said: str) -> None:
    assert said in reason(error)
    assert "Errno" not in reason(error)
