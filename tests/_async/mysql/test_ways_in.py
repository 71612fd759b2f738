"""The ways into a MySQL or MariaDB: users, sockets, TLS, and URLs that make no sense."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from tempfile import mkdtemp

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.chaos.servers.redis import certificate


async def works(url: object) -> None:
    async with holdfast.connect(url) as locks:  # type: ignore[arg-type]
        await (await locks.lock("x").acquire()).release()


async def test_a_password_with_every_sign(kept: MariaServer) -> None:
    url = kept.new_database()
    database = url.rpartition("/")[2]
    with kept.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE USER u_{database} IDENTIFIED BY %s", ["a/b:c@d?e#f%é😀'\""])
        cursor.execute(f"GRANT ALL ON {database}.* TO u_{database}")
    password = "a%2Fb%3Ac%40d%3Fe%23f%25é😀'\""
    await works(url.replace("//", f"//u_{database}:{password}@"))


async def test_a_unix_socket(kept: MariaServer) -> None:
    database = kept.new_database().rpartition("/")[2]
    await works(f"mysql:///{database}?unix_socket={kept.socket}")


async def test_an_option_file(kept: MariaServer, tmp_path: Path) -> None:
    url = kept.new_database()
    database = url.rpartition("/")[2]
    with kept.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE USER f_{database} IDENTIFIED BY 's3cret'")
        cursor.execute(f"GRANT ALL ON {database}.* TO f_{database}")
    file = tmp_path / "my.cnf"
    file.write_text(f"[client]\nuser = f_{database}\npassword = s3cret\n")
    await works(f"{url}?read_default_file={file}")


async def test_an_engine_of_sqlalchemy(kept: MariaServer) -> None:
    from sqlalchemy import create_engine

    url = kept.new_database().replace("mariadb://", "mysql+pymysql://")
    await works(create_engine(f"{url}?charset=utf8mb4&use_unicode=1&binary_prefix=true"))


async def test_a_connection_reads_no_certificates_that_it_does_not_need(
    kept: MariaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of all authorities take 30 ms and more to read, for each connection."""

    def read(*values: object, **named: object) -> None:
        raise AssertionError("nobody asked to check the server")

    url = kept.new_database()
    monkeypatch.setattr(ssl, "create_default_context", read)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", read)
    await works(url)


async def test_tls(tmp_path: Path) -> None:
    folder = Path(mkdtemp(prefix="hf-tls-"))
    folder.chmod(0o755)  # the server may run as another user
    cert, key = certificate(folder)
    Path(key).chmod(0o644)
    server = MariaServer(f"--ssl-cert={cert}", f"--ssl-key={key}")
    try:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE USER safe REQUIRE SSL")
            cursor.execute("GRANT ALL ON app.* TO safe")
        url = f"mysql://safe@127.0.0.1:{server.port}/app"
        await works(url)  # it is used if it can be
        await works(f"{url}?ssl_ca={cert}&ssl_verify_identity=1")
        with pytest.raises(holdfast.ConfigError, match="credentials"):
            await works(f"{url}?ssl_disabled=1")
        other, _ = certificate(tmp_path)
        with pytest.raises(holdfast.ConfigError, match="certificate"):
            await works(f"{url}?ssl_ca={other}")
        file = tmp_path / "my.cnf"
        file.write_text(f"[client]\nuser = safe\nssl-ca = {cert}\n")
        await works(f"{url}?read_default_file={file}")
        file.write_text(f"[client]\nuser = safe\nssl-ca = {other}\n")
        with pytest.raises(holdfast.ConfigError, match="certificate"):
            await works(f"{url}?read_default_file={file}")
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("mysql://h", "names no database"),
        ("mysql://h/", "names no database"),
        ("mysql://u:s3cret@h:port/app", "port"),
        ("mysql://u:s3cret@a,b/app", "one server"),
        ("mysql://u:s3cret@h/app?charset=latin1", "charset"),
        ("mysql://u:s3cret@h/app?ssl_verify_cert=maybe", "ssl_verify_cert"),
        ("mysql://u:s3cret@h/app?ssl_ca=/nowhere", "TLS files"),
        ("mysql://u:s3cret@h/app?nonsense=1", "nonsense"),
        ("mysql://u:s3cret/x@h/app", "port"),
        ("mysql://u:4711/s3cret@h", "%2F"),
        ("mysql://u:s3cret", "port"),
        ("mysql://u:s3cret@h:70000/app", "not 70000"),
    ],
)
def test_a_url_that_makes_no_sense(url: str, word: str) -> None:
    with pytest.raises(holdfast.ConfigError, match=word) as caught:
        holdfast.connect(url)
    assert "s3cret" not in str(caught.value)


async def test_a_user_is_not_named_in_any_language(kept: MariaServer) -> None:
    url = kept.new_database()
    database = url.rpartition("/")[2]
    user = f"secret_{database}"
    with kept.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE USER {user} WITH MAX_USER_CONNECTIONS 1")
        cursor.execute(f"GRANT SELECT ON {database}.* TO {user}")
        cursor.execute("SET GLOBAL lc_messages = 'de_DE'")
        try:
            with pytest.raises(holdfast.ConfigError, match="permission") as caught:
                await works(url.replace("//", f"//{user}@"))
            assert user not in str(caught.value)
            with (
                kept.connect(user=user, database=database),
                pytest.raises(holdfast.BackendUnavailable, match="max_user_conn") as busy,
            ):
                await works(url.replace("//", f"//{user}@"))
            assert user not in str(busy.value)
        finally:
            cursor.execute("SET GLOBAL lc_messages = 'en_US'")
