"""A server that speaks another language than English: libpq tells its words, and no code."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.postgres import PostgresServer
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.failures import unreachable
from holdfast.stores.sql.failures import Lost, Unready

HOST = 'connection to server at "127.0.0.1", port 5432 failed: '


@pytest.fixture(scope="module")
def german() -> Iterator[PostgresServer]:
    """Yields a server that speaks German, and asks `joe` for his password."""
    folder = Path(mkdtemp())
    folder.chmod(0o755)  # the server may run as another user
    name = "de_DE.UTF-8"
    if shutil.which("localedef"):
        command = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(folder / name)]
        subprocess.run(command, check=False, capture_output=True)
    if not (folder / name).exists():
        shutil.rmtree(folder)
        pytest.skip("this machine has no German")
    server = PostgresServer(
        "fsync=off", f"lc_messages={name}", environment={**os.environ, "LOCPATH": str(folder)}
    )
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE ROLE joe_of_sales LOGIN PASSWORD 'right'")
        connection.execute("CREATE ROLE few LOGIN CONNECTION LIMIT 0")
        rules = Path(connection.execute("SHOW hba_file").fetchone()[0])
        rules.write_text(f"host all joe_of_sales all scram-sha-256\n{rules.read_text()}")
        connection.execute("SELECT pg_reload_conf()")
    yield server
    server.stop()
    shutil.rmtree(folder)


async def refused(server: PostgresServer, user: str, database: str = "postgres") -> Exception:
    url = f"postgresql://{user}@127.0.0.1:{server.port}/{database}"
    with pytest.raises(holdfast.LockError) as caught:
        async with holdfast.connect(url) as locks:
            await locks.lock("x").acquire()
    return caught.value


@pytest.mark.parametrize("user", ["joe_of_sales:wrong", "joe_of_sales", "nobody_here", "few"])
async def test_credentials_are_refused_at_once_and_not_shown(
    german: PostgresServer, user: str
) -> None:
    error = await refused(german, user)
    assert isinstance(error, holdfast.ConfigError)
    assert user.partition(":")[0] not in str(error)


async def test_a_database_that_is_not_there_is_a_mistake_in_the_url(german: PostgresServer) -> None:
    assert isinstance(await refused(german, "postgres", "nowhere"), holdfast.ConfigError)


@pytest.mark.parametrize(
    "said",
    [
        'FATAL:  password authentication failed for user "joe"',
        "FATAL:  Passwort-Authentifizierung für Benutzer »joe« fehlgeschlagen",
        "FATAL:  authentification par mot de passe échouée pour l'utilisateur « joe »",
        'ВАЖНО:  пользователь "joe" не прошёл проверку подлинности (по паролю)',
        'FATAL:  ユーザー"joe"のパスワード認証に失敗しました',
        "FATAL:  no such user: joe",
        "FATAL:  la base de données « app » n'existe pas",
    ],
)
def test_what_names_the_user_is_about_the_user(said: str) -> None:
    error = unreachable(HOST + said, Address("127.0.0.1/app", {}), ("joe", "app"))
    assert isinstance(error, holdfast.ConfigError)
    assert "joe" not in str(error)


@pytest.mark.parametrize(
    "said",
    [
        "FATAL:  the database system is starting up",
        "FATAL:  das Datenbanksystem startet",
        "ВАЖНО:  извините, уже слишком много клиентов",
        'FATAL:  too many connections for role "joe"',
        'FATAL:  too many connections for database "app"',
    ],
)
def test_another_refusal_of_a_server_may_end_by_itself(said: str) -> None:
    error = unreachable(HOST + said + "\n", Address("127.0.0.1/app", {}), ("joe", "app"))
    assert isinstance(error, Unready)
    assert "joe" not in str(error)


def test_a_connection_that_is_not_made_is_no_refusal() -> None:
    said = HOST + "Connection refused\n\tIs the server running on that host?"
    error = unreachable(said, Address("127.0.0.1/app", {}), ("joe", "app"))
    assert isinstance(error, Lost)
