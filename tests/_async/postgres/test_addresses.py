"""Addresses that are wrong: what is said of them, without the password."""

from __future__ import annotations

import pytest

from holdfast import aio as holdfast
from servers.postgres import PostgresServer


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
