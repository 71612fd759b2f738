"""Which failures of etcd may be tried again, which want a login, and what the user is told."""

from __future__ import annotations

import pytest

from holdfast.errors import BackendUnavailable, ConfigError
from holdfast.stores.etcd.wire.failures import Failure


@pytest.mark.parametrize(
    ("code", "details", "passing", "unreachable", "wants_login"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses", True, True, False),
        ("UNAVAILABLE", "etcdserver: no leader", True, False, False),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", True, False, False),
        ("CANCELLED", "closed", True, False, False),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", True, False, False),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", False, False, False),
        ("NOT_FOUND", "etcdserver: requested lease not found", False, False, False),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", False, False, True),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", False, False, True),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", False, False, True),
        ("PERMISSION_DENIED", "etcdserver: permission denied", False, False, False),
    ],
)
def test_what_may_be_done_about_it(
    code: str, details: str, passing: bool, unreachable: bool, wants_login: bool
) -> None:
    failure = Failure(code, details, "a:1")
    found = failure.passing, failure.unreachable, failure.wants_login
    assert found == (passing, unreachable, wants_login)
    assert failure.lease_is_gone == ("lease not found" in details)


def test_what_the_user_is_told() -> None:
    for code, details, kind, words in (
        ("UNAVAILABLE", "etcdserver: no leader", BackendUnavailable, "cannot be used: no leader"),
        ("DEADLINE_EXCEEDED", "Deadline", BackendUnavailable, "did not answer in time"),
        ("PERMISSION_DENIED", "etcdserver: permission denied", ConfigError, "grant-permission"),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", ConfigError, "does not let us in"),
        ("INVALID_ARGUMENT", "etcdserver: authentication is not enabled", ConfigError, "no users"),
    ):
        told = Failure(code, details, "a:1").in_words("a:1,b:1")
        assert type(told) is kind
        assert words in str(told)
        assert "a:1,b:1" in str(told)
