"""Addresses that are wrong: what is said of them, without the password."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.postgres import PostgresServer
from holdfast.stores.postgres.address import Address, split_query
from holdfast.stores.urls import parse


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


async def test_a_password_with_every_sign_by_sqlalchemy(kept: PostgresServer) -> None:
    from sqlalchemy import URL, create_engine

    password = "p@ss/w?rd#% +é'&=:"
    name = kept.new_database().rpartition("/")[2]
    with kept.connect(autocommit=True) as connection:
        quoted = password.replace("'", "''")
        connection.execute(f"CREATE ROLE u_{name} SUPERUSER LOGIN PASSWORD '{quoted}'")
    url = URL.create("postgresql+psycopg", f"u_{name}", password, "127.0.0.1", kept.port, name)
    async with holdfast.connect(create_engine(url)) as locks:
        await (await locks.lock("x").acquire()).release()
    assert Address(parse(url).rest, {})._settings["password"] == password


@pytest.mark.parametrize("apart", [False, True])
async def test_several_hosts_as_sqlalchemy_writes_them(kept: PostgresServer, apart: bool) -> None:
    from sqlalchemy import URL

    name = kept.new_database().rpartition("/")[2]
    hosts, ports = ["127.0.0.2", "127.0.0.1"], ["1", str(kept.port)]
    query: dict[str, Any] = {"host": [":".join(place) for place in zip(hosts, ports, strict=True)]}
    if apart:
        query = {"host": hosts, "port": ports}
    url = URL.create("postgresql+psycopg", database=name, query=query)
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()


def test_ports_are_found_where_each_host_has_its_own() -> None:
    hosts = "host=a.b:1&host=/run/x&host=c"
    assert split_query(parse(f"postgresql:///app?{hosts}"))[1] == {"host": "a.b:1,/run/x,c"}
    assert split_query(parse("postgresql:///app?host=a:1&host=b"))[1] == {
        "host": "a,b",
        "port": "1,",
    }
    with pytest.raises(holdfast.ConfigError, match="two"):
        parse("postgresql:///app?user=a&user=b")


@pytest.mark.parametrize(
    "options",
    [
        "ssl=prefer&prepared_statement_cache_size=0",
        "ssl=false&async_fallback=true",
        "client_encoding=utf8",
    ],
)
async def test_options_that_engines_have(kept: PostgresServer, options: str) -> None:
    url = kept.new_database().replace("postgresql:", "postgresql+asyncpg:")
    async with holdfast.connect(f"{url}?{options}") as locks:
        await (await locks.lock("x").acquire()).release()


def test_the_word_of_another_driver_for_tls_counts() -> None:
    for word, mode in {"true": "require", "verify-full": "verify-full"}.items():
        url = f"postgresql+asyncpg://127.0.0.1/app?ssl={word}"
        assert split_query(parse(url))[1] == {"sslmode": mode}
