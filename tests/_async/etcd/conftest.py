"""The cluster that the tests here share, and a way to it that can be upset."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.chaos.servers.proxy import Proxy
from holdfast.stores.etcd._async import holder_watch
from stores import etcd_cluster


@pytest.fixture
def cluster() -> EtcdCluster:
    cluster = etcd_cluster()
    cluster.wipe()
    return cluster


@pytest.fixture
def proxy(cluster: EtcdCluster) -> Iterator[Proxy]:
    proxy = Proxy(cluster.members[0].port)
    proxy.about = b"/lock/x/"
    yield proxy
    proxy.close()


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves holders without a watch: the proxy then sees only what the test sends."""
    monkeypatch.setattr(holder_watch, "SOON", 1e6)
