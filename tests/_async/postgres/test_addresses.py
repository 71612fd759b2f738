"""Addresses that are wrong: what is said of them, without the password."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.postgres import PostgresServer


@pytest.mark.parametrize(
    "rest",
    ["app:hunter2/x@127.0.0.1/app", "app:4711/hunter2@127.0.0.1/app", "app:1/a:hunter2@h:5432/app"],
)
def test_a_password_with_a_slash_in_it_is_not_shown(rest: str) -> None:
    with pytest.raises(holdfast.ConfigError) as caught:
        holdfast.connect(f"postgresql://{rest}")
    assert "%2F" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_password_where_the_port_should_be_is_not_shown() -> None:
    with pytest.raises(holdfast.ConfigError, match="port") as caught:
        holdfast.connect("postgresql://app:hunter2/app")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["sslmode=always", "service=nowhere", "hostaddr=::1,::1"])
async def test_settings_that_libpq_refuses_are_not_tried_again(
    kept: PostgresServer, wrong: str
) -> None:
    with pytest.raises(holdfast.ConfigError, match=r"127\.0\.0\.1.*(sslmode|service|hostaddr)"):
        async with holdfast.connect(f"postgresql://127.0.0.1:{kept.port}/postgres?{wrong}"):
            pass


async def test_a_search_path_without_a_schema_is_refused(kept: PostgresServer) -> None:
    url = kept.new_database()
    with pytest.raises(holdfast.ConfigError, match="search_path"):
        async with holdfast.connect(f"{url}?options=-csearch_path%3Dnowhere"):
            pass


async def test_the_host_of_the_surroundings_is_resolved_by_us(
    kept: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because libpq would wait for a slow name server as long as that takes."""
    real = socket.getaddrinfo

    def resolver(host: Any, *args: Any, **options: Any) -> Any:
        return real("127.0.0.1" if host == b"ours.test" else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    monkeypatch.setenv("PGHOST", "ours.test")
    monkeypatch.setenv("PGPORT", str(kept.port))
    database = kept.new_database().rpartition("/")[2]
    async with holdfast.connect(f"postgresql:///{database}") as locks:
        await (await locks.lock("x").acquire()).release()
