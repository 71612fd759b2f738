"""SASL, by a server that knows one user: that one is let in, and others are told why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.chaos.servers.zookeeper import ZooKeeperEnsemble
from worlds.threads import eventually

PROVIDER = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
USERS = 'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_{}="{}"; }};\n'


ANN = {"mechanism": "DIGEST-MD5", "username": "ann", "password": "s3cret"}


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return tmp_path / "jaas.conf"


@pytest.fixture
def ensemble(users: Path) -> Iterator[ZooKeeperEnsemble]:
    users.write_text(USERS.format("ann", "s3cret"))
    command = ("env", f"JAVA_TOOL_OPTIONS=-Djava.security.auth.login.config={users}")
    made = ZooKeeperEnsemble([("127.0.0.1", command)], PROVIDER)
    yield made
    made.stop()


def test_sasl(ensemble: ZooKeeperEnsemble) -> None:
    url, ann = ensemble.url, ANN
    with holdfast.connect(url, sasl=ann) as locks:
        lease = locks.lock("x").acquire()
        assert lease.held
        with holdfast.connect(url, sasl=ann) as others:
            assert others.lock("x").try_acquire() is None
        wrong = holdfast.connect(url, sasl={**ann, "password": "wr0ng"})
        with pytest.raises(holdfast.ConfigError, match="refused our credentials") as error:
            wrong.lock("x").acquire()
        assert "wr0ng" not in str(error.value)
        with pytest.raises(holdfast.ConfigError, match="does not let us"):
            holdfast.connect(url).lock("x").acquire()  # nobody in particular
        assert lease.release() is True


def test_a_manager_whose_credentials_were_refused_is_let_in_later(
    ensemble: ZooKeeperEnsemble, users: Path
) -> None:
    (server,) = ensemble.nodes
    with holdfast.connect(ensemble.url, sasl=ANN) as locks:
        lost: list[object] = []
        lease = locks.lock("x").acquire()
        lease.on_lost(lost.append)
        server.kill()
        users.write_text(USERS.format("ann", "an0ther"))
        server.start()
        ensemble.ready()
        eventually(lambda: lost)
        with pytest.raises(holdfast.ConfigError, match="refused our credentials"):
            locks.lock("y").acquire()
        server.kill()
        users.write_text(USERS.format("ann", "s3cret"))
        server.start()
        ensemble.ready()
        assert locks.lock("y").acquire().held
