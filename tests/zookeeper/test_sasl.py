"""SASL, by a server that knows one user: that one is let in, and others are told why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from servers.zookeeper import ZooKeeperEnsemble

PROVIDER = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
USERS = 'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_{}="{}"; }};\n'


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    users = tmp_path / "jaas.conf"
    users.write_text(USERS.format("ann", "s3cret"))
    command = ("env", f"JAVA_TOOL_OPTIONS=-Djava.security.auth.login.config={users}")
    ensemble = ZooKeeperEnsemble([("127.0.0.1", command)], PROVIDER)
    yield ensemble.url
    ensemble.stop()


def test_sasl(url: str) -> None:
    ann = {"mechanism": "DIGEST-MD5", "username": "ann", "password": "s3cret"}
    with holdfast.connect(url, sasl=ann) as locks:
        lease = locks.lock("x").acquire()
        assert lease.held
        with holdfast.connect(url, sasl=ann) as others:
            assert others.lock("x").try_acquire() is None
        wrong = holdfast.connect(url, sasl={**ann, "password": "wr0ng"})
        with pytest.raises(holdfast.BackendUnavailable, match="refused our credentials") as error:
            wrong.lock("x").acquire()
        assert "wr0ng" not in str(error.value)
        with pytest.raises(holdfast.BackendUnavailable, match="does not let us"):
            holdfast.connect(url).lock("x").acquire()  # nobody in particular
        assert lease.release() is True
