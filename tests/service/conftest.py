from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from service.running import Api, running
from stores import redis_server

_numbers = itertools.count(1)
_databases = itertools.count(1)


def _redis_url() -> str:
    """Returns the URL of a database that no other module uses."""
    return f"{redis_server().url.removesuffix('/0')}/{next(_databases)}"


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Returns a service that runs while the tests of a module do."""
    if request.param == "redis":
        url = _redis_url()
    else:
        url = f"sqlite://{tmp_path_factory.mktemp('store')}/locks.db"
    with running(url, look_every=0.1) as (api, _):
        yield api


@pytest.fixture(scope="module")
def redis_url() -> str:
    return _redis_url()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Returns the name of a lock that no other test uses."""
    return f"lock-{next(_numbers)}"
