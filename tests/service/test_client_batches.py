"""The library's requests follow the limits of a service: what is too large for one goes in several."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.entries import Claim
from holdfast.model import Gone, Renewed
from holdfast.stores.http.batches import BYTES, CLAIMS, batches
from holdfast.stores.http.codec import claims_body
from service.running import NAMESPACES, Api, running

LONG = "x" * 900
PATIENCE = 60.0


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Returns a service that takes little in one request."""
    folder: Path = tmp_path_factory.mktemp("store")
    with running(f"sqlite://{folder}/locks.db", body_limit=2000) as (api, _):
        yield api


@pytest.fixture
def locks(strict: Api) -> Iterator[holdfast.Locks]:
    with holdfast.connect(strict.url, namespace=NAMESPACES[0]) as locks:
        yield locks


def test_leases_are_renewed_in_as_many_requests_as_it_takes(locks: holdfast.Locks) -> None:
    leases = [locks.lock(f"{LONG}{number}", ttl=300.0).acquire() for number in range(7)]
    claims = [Claim(one.name, one.owner, 300.0) for one in leases]
    claims.insert(3, Claim("never", "nobody", 300.0))
    assert len(claims_body(claims)) > 2000
    backend = locks._session().backend
    outcomes = backend.renew(claims, time.monotonic() + PATIENCE)
    assert [type(one) for one in outcomes] == [Renewed] * 3 + [Gone] + [Renewed] * 4
    pairs = [(one.name, one.owner) for one in claims]
    released = backend.release_all(pairs, time.monotonic() + PATIENCE)  # type: ignore[attr-defined]
    assert released == [True] * 3 + [False] + [True] * 4


def test_locks_that_cannot_be_asked_for_together_are_refused(locks: holdfast.Locks) -> None:
    names = [f"{LONG}{number}" for number in range(3)]
    with pytest.raises(holdfast.ConfigError, match="more than 2000 bytes"):
        locks.multi(names).acquire(timeout=0)
    assert not locks.list(LONG)


@pytest.mark.parametrize("sign", ["x", "é", "\N{GRINNING FACE}"])
def test_no_batch_is_larger_than_a_service_takes(sign: str) -> None:
    name = sign * (1024 // len(sign.encode()))
    claims = [Claim(name, "o" * 64, 31_622_400.123456789) for _ in range(2 * CLAIMS + 1)]
    parts = list(batches(claims))
    assert [one for part in parts for one in part] == claims
    assert all(len(part) <= CLAIMS and len(claims_body(part)) <= BYTES for part in parts)
    assert len(parts) <= len(claims_body(claims)) // BYTES * 2 + 3
    assert list(batches([])) == []
    assert list(batches(claims[:1])) == [claims[:1]]
