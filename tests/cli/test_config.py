"""`--store`: stores that the configuration names, and a configuration that is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.stage import Ended, Stage

SECRET = "hunter2"


def config(stage: Stage, text: str, mode: int = 0o600) -> Path:
    path = stage.folder / "config.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def run(stage: Stage, *words: str, **more: str) -> Ended:
    env = stage.environment(HOLDFAST_CONFIG=str(stage.folder / "config.toml"), **more)
    del env["HOLDFAST_URL"]
    ended = stage.run(*words, env=env)
    assert SECRET not in ended.err + ended.out
    assert "Traceback" not in ended.err
    return ended


def test_a_named_store(stage: Stage) -> None:
    other = f"sqlite://{stage.folder}/other.db"
    config(stage, f'[stores.prod]\nurl = "{stage.url}"\n[stores.test]\nurl = "{other}"')
    with stage.locks.lock("x"):
        for words in (["--store", "prod", "show", "x"], ["show", "x", "--store=prod"]):
            ended = run(stage, *words)
            assert (ended.status, ended.err) == (0, "")
            assert ended.out.startswith("x  held")
        assert run(stage, "show", "x", "--store", "test").out.startswith("x  free")
        ended = run(stage, "run", "x", "--store", "prod", "--no-wait", "--", "true")
        assert ended.status == 75
        # It is chosen over the environment.
        ended = run(stage, "show", "x", "--store", "prod", HOLDFAST_URL=other)
        assert ended.out.startswith("x  held")


def test_its_namespace(stage: Stage) -> None:
    config(stage, f'[stores.prod]\nurl = "{stage.url}"\nnamespace = "billing"')
    with stage.locks.lock("x"):
        assert run(stage, "show", "x", "--store", "prod").out.startswith("x  free")
        ended = run(stage, "show", "x", "--store", "prod", "--namespace", "holdfast")
        assert ended.out.startswith("x  held")


def test_the_folder_of_configurations(stage: Stage) -> None:
    for name, value in (
        ("XDG_CONFIG_HOME", str(stage.folder / "xdg")),
        ("HOME", str(stage.folder)),
    ):
        folder = Path(value) / ("" if name == "XDG_CONFIG_HOME" else ".config") / "holdfast"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(f'[stores.{name}]\nurl = "{stage.url}"')
        (folder / "config.toml").chmod(0o644)
        env = stage.environment(**{"XDG_CONFIG_HOME": "relative", name: value})
        ended = stage.run("ls", "--store", name, env=env)
        assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize("mode", [0o660, 0o602, 0o666])
def test_one_that_others_may_write_is_refused(stage: Stage, mode: int) -> None:
    path = config(stage, f'[stores.prod]\nurl = "{stage.url}"', mode)
    ended = run(stage, "ls", "--store", "prod")
    assert (ended.status, ended.out) == (2, "")
    assert f"others may write to the configuration {path}" in ended.err
    assert f"chmod go-w {path}" in ended.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_one_of_somebody_else_is_refused(stage: Stage) -> None:
    os.chown(config(stage, f'[stores.prod]\nurl = "{stage.url}"'), 12345, -1)
    ended = run(stage, "ls", "--store", "prod")
    assert (ended.status, "somebody else's" in ended.err) == (2, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_one_in_a_folder_of_somebody_else_is_refused(stage: Stage) -> None:
    os.chown(config(stage, f'[stores.prod]\nurl = "{stage.url}"').parent, 12345, -1)
    ended = run(stage, "ls", "--store", "prod")
    assert (ended.status, "the configuration is somebody else's" in ended.err) == (2, True)


def test_one_that_others_may_replace_is_refused(stage: Stage) -> None:
    folder = stage.folder / "open" / "inner"
    folder.mkdir(parents=True)
    path = folder / "config.toml"
    path.write_text(f'[stores.prod]\nurl = "{stage.url}"')
    path.chmod(0o600)
    (stage.folder / "link.toml").symlink_to(path)
    for mode, status in ((0o755, 0), (0o777, 2), (0o1777, 0), (0o775, 0)):
        for opened in (folder, folder.parent):
            opened.chmod(mode)
            for named in (path, stage.folder / "link.toml"):
                env = stage.environment(HOLDFAST_CONFIG=str(named))
                ended = stage.run("ls", "--store", "prod", env=env)
                assert ended.status == status, (mode, ended)
                said = f"everybody may write to {opened}, in which the configuration is"
                assert (said in ended.err) == (status == 2)
            opened.chmod(0o755)


def test_a_mark_at_its_head_is_no_mistake(stage: Stage) -> None:
    config(stage, f'\ufeff[stores.prod]\nurl = "{stage.url}"')
    ended = run(stage, "ls", "--store", "prod")
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no store in"),
        ("[stores.prod", "is not TOML (at"),
        (f'[stores.prod]\nurl = "redis://ada:{SECRET}@h\n', "is not TOML (at line 2"),
        (f"[stores.prod]\nurl = redis://ada:{SECRET}@h\n", "is not TOML (at line 2"),
        ("\udcff", "is not UTF-8"),
        ("[stores.prod]", "has no url"),
        ("[stores.prod]\nurl = 7", "url of [stores.prod] in the configuration"),
        (f'[stores.prod]\nurl = "{SECRET}"', "not a store's URL"),
        (f'[stores.prod]\nurl = "frob://ada:{SECRET}@h"', "unknown kind of store"),
        (
            f'[stores.prod]\nurl = "redis://ada:{SECRET}@127.0.0.1:1"\nuser = "x"',
            "unknown key 'user'",
        ),
        ("stores = 3", "stores must be tables"),
        ("[stores]\nprod = 3", "must be a table"),
        (f'prod = "{SECRET}"', "unknown key 'prod'"),
        ('[stores.prdo]\nurl = "memory://"', "did you mean prdo?"),
    ],
)
def test_mistakes_are_told_without_secrets(stage: Stage, text: str, said: str) -> None:
    path = config(stage, "")
    path.write_bytes(os.fsencode(text))
    ended = run(stage, "ls", "--store", "prod")
    assert (ended.status, ended.out) == (2, ""), ended
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_other_mistakes(stage: Stage) -> None:
    ended = run(stage, "ls", "--store", "prod")
    assert (ended.status, "there is no configuration at" in ended.err) == (2, True)
    ended = run(stage, "ls", "--store", "prod", "--url", "memory://")
    assert (ended.status, "exclude each other" in ended.err) == (2, True)
    (stage.folder / "config.toml").mkdir()
    ended = run(stage, "ls", "--store", "prod")
    assert (ended.status, "is no file" in ended.err) == (2, True)
    (stage.folder / "config.toml").rmdir()
    os.mkfifo(stage.folder / "config.toml")
    ended = run(stage, "ls", "--store", "prod")
    assert (ended.status, "is no file" in ended.err) == (2, True)


def test_an_unreachable_store_is_told_without_its_password(stage: Stage) -> None:
    config(stage, f'[stores.prod]\nurl = "redis://ada:{SECRET}@127.0.0.1:1"')
    assert run(stage, "ls", "--store", "prod").status == 69
    assert run(stage, "fence", "check", "r", "1", "--store", "prod").status == 69
