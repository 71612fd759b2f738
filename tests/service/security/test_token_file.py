"""The token file under a running service: followed as it changes, and nobody is let in if it is bad."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError
from holdfast.service.security import private_files, session_key, token_file
from holdfast.service.security.badge import Badge
from holdfast.service.security.bearer import generate
from holdfast.service.security.logged_out import LoggedOut
from holdfast.service.security.roster import Roster, RosterUnavailable


def make(path: Path, **changes: object) -> tuple[str, Badge]:
    """Adds a token to the file; returns its text and its badge."""
    text, bearer = generate()
    badge = Badge(bearer.id, bearer.digest, "me", "hold", ("a:",), None, 1.0, None)
    badge = badge._replace(**changes)  # type: ignore[arg-type]
    token_file.add(str(path), badge)
    return text, badge


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def test_a_change_is_seen_by_the_next_look(path: Path) -> None:
    text, badge = make(path)
    roster = Roster(str(path))
    assert roster.recognise(text) == badge
    other, second = make(path)
    assert roster.recognise(other) == second
    token_file.remove(str(path), [badge.id])
    assert roster.recognise(text) is None
    assert roster.find(badge.id) is None
    assert roster.recognise(other) == second


def test_the_id_alone_does_not_let_anybody_in(path: Path) -> None:
    _, badge = make(path)
    # A real token, with a checksum that is right, whose id is that of another.
    text, bearer = generate()
    token_file.add(str(path), badge._replace(id=bearer.id))
    assert Roster(str(path)).recognise(text) is None


def test_a_token_ends(path: Path) -> None:
    now = 1000.0
    text, badge = make(path, expires=2000.0)
    roster = Roster(str(path), lambda: now)
    assert roster.recognise(text) == badge
    assert roster.usable() == 1
    now = 2000.0
    assert roster.recognise(text) is None
    assert roster.find(badge.id) is None
    assert roster.usable() == 0


def test_without_a_file_it_is_open_until_there_is_one(path: Path) -> None:
    roster = Roster(str(path))
    assert roster.badges() == {}
    assert roster.open
    make(path)
    roster.badges()
    assert not roster.open


def test_one_writer_at_a_time(path: Path) -> None:
    make(path)
    with open(f"{path}.lock") as other:
        with private_files.turn(str(path)), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def put_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut off": lambda path: path.write_text(path.read_text()[:-20]),
    "empty": lambda path: path.write_text(""),
    "not JSON": lambda path: path.write_bytes(b"\xff\xfe"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "gone": lambda path: path.unlink(),
    "a folder": put_folder,
    "for all to write": lambda path: path.chmod(0o666),
    "for all to read": lambda path: path.chmod(0o644),
    "a pipe": put_pipe,
    "another release": lambda path: change(path, lambda content: content.update(version=2)),
    "another key": lambda path: change(path, lambda content: content["tokens"][0].update(also=1)),
    "no prefixes": lambda path: change(path, lambda c: c["tokens"][0].update(prefixes=[])),
    "prefixes as a text": lambda path: change(path, lambda c: c["tokens"][0].update(prefixes="")),
    "no role": lambda path: change(path, lambda content: content["tokens"][0].update(role="root")),
    "no digest": lambda path: change(path, lambda content: content["tokens"][0].update(digest="")),
    "no time": lambda path: change(path, lambda c: c["tokens"][0].update(expires="never")),
    "not a token": lambda path: change(path, lambda content: content.update(tokens=[[]])),
    "twice": lambda path: change(path, lambda c: c.update(tokens=c["tokens"] * 2)),
}


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_file_lets_nobody_in(path: Path, damage: str) -> None:
    text, badge = make(path)
    good = path.read_bytes()
    roster = Roster(str(path))
    assert roster.recognise(text) == badge
    DAMAGES[damage](path)
    for _ in range(2):
        with pytest.raises(RosterUnavailable):
            roster.recognise(text)
        with pytest.raises(RosterUnavailable):
            roster.find(badge.id)
    assert not roster.open
    if damage != "gone":
        with pytest.raises(ConfigError):
            Roster(str(path))
    if path.is_dir():
        path.rmdir()
    elif path.exists():
        path.unlink()
    path.touch(0o600)
    path.write_bytes(good)
    assert roster.recognise(text) == badge


def test_a_file_that_is_somebody_elses_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match="somebody else's"):
        Roster(str(path))


@contextmanager
def no_descriptor(monkeypatch: pytest.MonkeyPatch, path: str) -> Iterator[None]:
    """Lets nobody open `path` for reading, as in a process that has no descriptor left."""
    before = os.open

    def refuse(name: Any, flags: int, *words: Any, **options: Any) -> int:
        if str(name) == path and not flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return before(name, flags, *words, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        yield


def test_a_file_that_could_not_be_read_is_read_by_the_next_look(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is wrong with it: nobody would mend it, so its mark would stay the same."""
    text, badge = make(path)
    roster = Roster(str(path))
    other, second = make(path)
    with no_descriptor(monkeypatch, str(path)):
        for _ in range(2):
            with pytest.raises(RosterUnavailable):
                roster.recognise(text)
    assert roster.recognise(text) == badge
    assert roster.recognise(other) == second


def test_a_disk_that_fails_lets_nobody_in_until_it_works(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, badge = make(path)

    def fail(fd: int) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    roster = Roster(str(path))
    make(path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", fail)
        with pytest.raises(RosterUnavailable, match="Input/output error"):
            roster.recognise(text)
    assert roster.recognise(text) == badge


def test_a_log_out_that_could_not_be_read_is_learnt_by_the_next_look(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = LoggedOut(str(path)), LoggedOut(str(path))
    there.add("one", time.time() + 60)
    with no_descriptor(monkeypatch, str(path.parent / "logged-out.json")):
        assert "one" not in here
    assert "one" in here


def test_a_writer_that_died_leaves_the_file_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, badge = make(path)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            make(path)
    assert Roster(str(path)).recognise(text) == badge
    assert sorted(one.name for one in path.parent.iterdir()) == ["tokens.json", "tokens.json.lock"]


def test_the_session_key_is_made_once_and_checked(path: Path) -> None:
    key = session_key.ensure(str(path))
    assert session_key.ensure(str(path)) == session_key.for_service(str(path)) == key
    file = Path(session_key.path_beside(str(path)))
    file.write_text(file.read_text()[:10])
    with pytest.raises(ConfigError, match="damaged"):
        session_key.for_service(str(path))
    file.write_text("00" * 32)
    file.chmod(0o640)
    assert session_key.ensure(str(path)) == bytes(32)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        session_key.for_service(str(path))


def test_where_no_key_can_be_made_one_serves_for_this_process(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    inside = str(tmp_path / "file" / "tokens.json")
    assert session_key.for_service(inside) != session_key.for_service(inside)
