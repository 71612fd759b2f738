"""`holdfast token`: what it makes, lists and revokes, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from cli.stage import Stage, ended
from holdfast.cli.__main__ import main
from holdfast.service.security.bearer import generate, parse


@pytest.fixture
def path(stage: Stage) -> Path:
    """The token file where nothing names another."""
    return stage.folder / ".config" / "holdfast" / "tokens.json"


def create(stage: Stage, *words: str) -> str:
    made = stage.run("token", "create", *words, env=environment(stage))
    assert made.status == 0, made
    return made.out.rstrip("\n")


def environment(stage: Stage) -> dict[str, str]:
    kept = stage.environment()
    kept.pop("XDG_CONFIG_HOME", None)
    return kept


def test_a_token_is_shown_once_and_kept_as_a_digest(stage: Stage, path: Path) -> None:
    made = stage.run(
        "token", "create", "--role", "hold", "--prefix", "a:", "--prefix=b:", env=environment(stage)
    )
    text = made.out.rstrip("\n")
    assert re.fullmatch(r"holdfast_\w{10}_\w{49}", text)
    bearer = parse(text)
    assert bearer is not None
    assert bearer.id in made.err
    assert text not in made.err
    content = path.read_text()
    assert text not in content
    assert text[20:] not in content
    (kept,) = json.loads(content)["tokens"]
    assert (kept["digest"], kept["prefixes"], kept["role"]) == (bearer.digest, ["a:", "b:"], "hold")


def test_only_its_owner_may_read_the_file(stage: Stage, path: Path) -> None:
    old = os.umask(0)
    try:
        create(stage, "--role", "read", "--prefix", "")
    finally:
        os.umask(old)
    for one in (path, path.parent / "session.key"):
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_list_and_revoke(stage: Stage, path: Path) -> None:
    text = create(stage, "--role", "admin", "--prefix", "", "--expires", "90d", "--name", "Ada")
    other = create(stage, "--role", "metrics", "--namespace", "billing")
    shown = stage.run("token", "list", env=environment(stage))
    assert "Ada" in shown.out
    assert "all names" in shown.out
    assert "in 89d" in shown.out or "in 90d" in shown.out
    assert "billing" in shown.out
    listed = json.loads(stage.run("token", "list", "--json", env=environment(stage)).out)
    assert listed[0]["name"] == "Ada"
    assert all("digest" not in one for one in listed)
    for token in (text, other):
        assert token[20:] not in shown.out
    # By its id, or by the whole token if that is what somebody has at hand; it is not repeated.
    for word, token in ((listed[0]["id"], text), (other, other)):
        revoked = stage.run("token", "revoke", word, env=environment(stage))
        assert revoked.status == 0
        assert token[20:] not in revoked.err
    assert json.loads(path.read_text())["tokens"] == []


def test_a_whole_token_with_blanks_around_it_is_revoked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "tokens.json")
    assert main(["token", "create", "--role", "read", "--prefix", "", "--token-file", file]) == 0
    text = capfd.readouterr().out.strip()
    assert main(["token", "revoke", f"  {text}\n", "--token-file", file]) == 0
    assert_not_shown(text, capfd)
    assert json.loads(Path(file).read_text())["tokens"] == []


@pytest.mark.parametrize(
    "words",
    [
        ["token", "revoke", "{token} x"],
        ["token", "revoke", "{token}0"],
        ["token", "revoke", "{start}\n{end}"],
        ["token", "revoke", "{end}"],
        ["token", "revoke", "old{token}"],
        ["token", "list", "{token}"],
        ["token", "create", "--role", "read", "--prefix", "", "{token}"],
        ["token", "{token}"],
        ["token", "list", "--token-file", "{token}"],
        ["token", "revoke", "abc", "--token-file", "{token}"],
        ["{token}"],
    ],
)
def test_a_token_in_a_wrong_place_is_not_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite://{tmp_path}/locks.db")
    text, _ = generate()
    parts = {"token": text, "start": text[:45], "end": text[45:]}
    main([word.format(**parts) for word in words])
    assert_not_shown(text, capfd)


def assert_not_shown(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Checks that something was said, and no part of the secret of this token."""
    told = capfd.readouterr()
    assert told.out == ""
    assert "holdfast: " in told.err
    secret = text.rpartition("_")[2]
    for start in range(len(secret) - 9):
        assert secret[start : start + 10] not in told.err, told.err


def test_expired_tokens_are_revoked_together(stage: Stage, path: Path) -> None:
    create(stage, "--role", "read", "--prefix", "", "--expires", "1ms", "--name", "old")
    create(stage, "--role", "read", "--prefix", "", "--expires", "1d", "--name", "new")
    assert "expired" in stage.run("token", "list", env=environment(stage)).out
    assert "old" in stage.run("token", "revoke", "--expired", env=environment(stage)).err
    assert [one["name"] for one in json.loads(path.read_text())["tokens"]] == ["new"]


def test_many_at_once_lose_none(stage: Stage, path: Path) -> None:
    words = ("token", "create", "--role", "read", "--prefix", "x")
    started = [stage.start(*words, env=environment(stage)) for _ in range(6)]
    texts = {ended(process).out.strip() for process in started}
    assert len(texts) == 6
    kept = {one["id"] for one in json.loads(path.read_text())["tokens"]}
    assert kept == {text.split("_")[1] for text in texts}
    assert sorted(one.name for one in path.parent.iterdir()) == [
        "session.key",
        "tokens.json",
        "tokens.json.lock",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "create|list|revoke is missing"),
        (["make"], "no token command 'make'"),
        (["create", "--prefix", "x"], "--role read|hold|admin"),
        (["create", "--role", "hold"], "--prefix billing:"),
        (["create", "--role", "boss", "--prefix", "x"], "no role 'boss'"),
        (["create", "--role", "hold", "--prefix", "a\x07"], "control character"),
        (["create", "--role", "hold", "--prefix", "x", "--expires", "0s"], "nobody can use"),
        (["create", "--role", "hold", "--prefix", "x", "--expires", "400d"], "too long"),
        (["create", "--role", "hold", "--prefix", "x", "--namespace", ""], "namespace is empty"),
        (["create", "me", "--role", "hold", "--prefix", "x"], "no further word"),
        (["list", "--role", "hold"], "takes no --role"),
        (["revoke"], "ID is missing"),
        (["revoke", "abc"], "no token 'abc'"),
    ],
)
def test_mistakes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    file = tmp_path / "tokens.json"
    assert main(["token", *words, "--token-file", str(file)]) == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert said in told.err
    assert not file.exists()


@pytest.mark.parametrize("damage", ["{", '{"version": 2, "tokens": []}', "[]", ""])
def test_a_damaged_file_is_left_as_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(damage)
    file.chmod(0o600)
    for words in (["create", "--role", "read", "--prefix", "x"], ["revoke", "abc"], ["list"]):
        assert main(["token", *words, "--token-file", str(file)]) == 2, words
        told = capfd.readouterr()
        assert told.out == ""
        assert str(file) in told.err
    assert file.read_text() == damage


def test_a_file_that_others_may_write_is_refused(stage: Stage, path: Path) -> None:
    create(stage, "--role", "read", "--prefix", "x")
    path.chmod(0o620)
    answer = stage.run("token", "list", env=environment(stage))
    assert answer.status == 2
    assert f"chmod 600 {path}" in answer.err
