"""Case 8: what is not a store of ours is refused, and left exactly as it was."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
import holdfast.aio
from holdfast.stores.sqlite.file import FORMAT
from worlds.descriptors import open_files


def text(path: str) -> None:
    Path(path).write_text("this is not a database, but somebody may need it\n" * 100)


def empty(path: str) -> None:
    Path(path).touch()


def torn(path: str) -> None:
    """The first half of a store."""
    with holdfast.connect(f"sqlite://{path}") as locks:
        locks.lock("x").acquire().release()
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[:50])


def foreign(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE invoice (id)")
        connection.execute("INSERT INTO invoice VALUES (42)")
        connection.execute(f"PRAGMA user_version = {FORMAT}")  # as ours has by chance
        connection.commit()


def foreign_in_wal_mode(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE invoice (id)")
        connection.commit()


def foreign_that_crashed(path: str) -> None:
    """Killed, so that what it wrote last is only in its log."""
    code = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('PRAGMA journal_mode = WAL'); c.execute('CREATE TABLE invoice (id)');"
        "c.execute('INSERT INTO invoice VALUES (42)'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == -9
    assert os.path.getsize(f"{path}-wal") > 0


def store(path: str, version: int) -> None:
    with holdfast.connect(f"sqlite://{path}") as locks:
        locks.lock("x").acquire().release()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def newer(path: str) -> None:
    store(path, FORMAT + 1)


def older(path: str) -> None:
    store(path, FORMAT - 1)


@pytest.mark.parametrize(
    "make",
    [text, empty, torn, foreign, foreign_in_wal_mode, foreign_that_crashed, newer, older],
)
async def test_a_strangers_file_is_refused_and_left_alone(
    make: Callable[[str], None], tmp_path: Path
) -> None:
    path = str(tmp_path / "file.db")
    make(path)
    before = contents(tmp_path)
    times = os.stat(path).st_mtime_ns
    locks = holdfast.connect(f"sqlite://{path}")
    for _ in range(2):
        with pytest.raises(holdfast.ConfigError, match=r"file\.db") as refused:
            locks.lock("x").try_acquire()
        assert "left as it is" in str(refused.value)
    files = open_files(tmp_path)  # with those by which the process is seen to live
    with pytest.raises(holdfast.ConfigError, match=r"file\.db"), locks:
        pass
    locks.close()
    others = holdfast.aio.connect(f"sqlite://{path}")
    with pytest.raises(holdfast.ConfigError, match=r"file\.db"):
        await others.lock("x").try_acquire()
    await others.close()
    assert open_files(tmp_path) <= files
    assert contents(tmp_path) == before
    assert os.stat(path).st_mtime_ns == times


def contents(folder: Path) -> dict[str, bytes]:
    """All but the folder of the living, and the index that SQLite makes of a log."""
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.is_file() and not file.name.endswith("-shm")
    }
