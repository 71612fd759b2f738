"""`holdfast chaos`: what it takes, what it prints, how it ends."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest

from cli.screen import Screen
from cli.stage import HOLDFAST, Ended, Stage, ended, eventually
from holdfast.chaos.faults import FAULTS
from holdfast.chaos.labs import LABS

QUICK = ("--faults", "pause", "--duration", "2s", "--seed", "3", "--jobs", "6")


LIMIT = 240.0


def run(stage: Stage, *words: str) -> Ended:
    """Runs chaos, however long the servers take to start."""
    return ended(stage.start("chaos", *words), LIMIT)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--backend", "oracle"], "there is no store 'oracle'"),
        (["--faults", "paus"], "did you mean pause?"),
        (["--library", "zookeeper-py"], "there is no library"),
        (
            ["--library", "kazoo", "--backend", "redis"],
            "there is no store for kazoo called 'redis'; choose from",
        ),
        (["--seed", "-1"], "--seed needs a number"),
        (["--duration", "0s"], "--duration must be between"),
        (["--url", "redis://127.0.0.1:1", "--backend", "redis"], "exclude each other"),
        (["--json", "--markdown"], "exclude each other"),
        (["--backend", "sqlite", "--faults", "failover"], "none of these faults"),
        (["--state", "here"], "--state is for long campaigns"),
        (["--state", "/dev/null", "--grants", "1"], "cannot be used: File exists"),
        (["--state", "/proc/runs", "--grants", "1"], "cannot be used: No such file"),
        (["--html", "no/such/folder.html"], "cannot be written"),
        (["--html", "."], "cannot be written"),
        (["--workers", "1"], "--workers needs a number from 2"),
        (["--jobs", "0"], "--jobs needs a number from 1"),
        (["--grants", "0"], "--grants needs a number from 1"),
        (["now"], "one word too many"),
        (["--namespace", "app"], "chaos takes no --namespace"),
        (["--list", "--faults", "paus"], "--list stands alone; leave out --faults"),
        (["--backend", "sqlite,al"], "did you mean all?"),
        (["--url", ""], "--url needs a value"),
        (["--store", "ours", "--backend", "redis"], "--backend and --store exclude each other"),
    ],
)
def test_mistakes(stage: Stage, words: list[str], said: str) -> None:
    found = stage.run("chaos", *words)
    assert (found.status, found.out) == (2, "")
    assert said in found.err


def test_what_can_be_broken_here(stage: Stage) -> None:
    found = stage.run("chaos", "--list")
    assert (found.status, found.err) == (0, "")
    for word in ("clients", "sqlite", "kill-at-call", "python-redis-lock"):
        assert word in found.out
    for name in (*LABS, *FAULTS):
        assert f"\n  {name}  " in found.out


def test_a_store_that_cannot_be_had(stage: Stage) -> None:
    url = "redis://ada:hunter2@127.0.0.1:1"
    found = run(stage, "--url", url, *QUICK)
    assert found.status == 69, found
    assert "hunter2" not in found.out + found.err


def test_the_report_and_the_picture(stage: Stage) -> None:
    found = run(stage, "--backend", "sqlite", *QUICK, "--json", "--html", "chaos.html")
    report = json.loads(found.out)
    assert found.status == 0, found.err
    assert report["passed"]
    assert [one["id"] for one in report["runs"] if not one["control"]] == ["sqlite-pause"]
    assert len([one for one in report["runs"] if one["control"]]) == 4
    (ours,) = (one for one in report["runs"] if not one["control"])
    assert {lane["kind"] for lane in ours["lanes"]} == {"worker", "node", "register"}
    assert {"ask", "grant", "seen", "send", "write", "fault"} <= {e["kind"] for e in ours["events"]}
    assert "--seed 3" in report["command"]
    assert "<html" in (stage.folder / "chaos.html").read_text()


def test_what_a_person_sees(stage: Stage) -> None:
    found = run(stage, *QUICK)
    assert (found.status, found.err) == (0, "")
    assert "stands still" in found.out
    assert "4 of 4 known-bad locks were caught" in found.out
    assert "Again: holdfast chaos --faults pause" in found.out
    assert "\033" not in found.out  # no colours where nobody sees them


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_terminal_shows_the_verdict(stage: Stage, columns: int) -> None:
    words = ["--backend", "sqlite", *QUICK, "--without-controls"]
    shown = Screen(stage, *HOLDFAST, "chaos", *words, size=(columns, 24))
    try:
        shown.expect("Seed 3")
        shown.expect("stands still")
        shown.expect("Again: ")
        assert shown.ended() == 0, shown.text
    finally:
        shown.close()
    titles, row = shown.text.partition("\r\nstore ")[2].splitlines()[:2]
    assert titles.endswith("  verdict")
    assert row.endswith("  passed")
    assert len(row) <= columns


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_behind(stage: Stage, how: signal.Signals) -> None:
    folder = stage.folder / "tmp"
    folder.mkdir()
    words = ["--backend", "redis", "--faults", "pause", "--duration", "60s", "--jobs", "1"]
    chaos = stage.start("chaos", *words, env=stage.environment(TMPDIR=str(folder)))
    assert chaos.stdout is not None
    while line := chaos.stdout.readline():
        if "stands still" in line:
            break
    chaos.send_signal(how)
    out, err = chaos.communicate(timeout=60)
    eventually(lambda: not running_in(folder), "the end of all that was started")
    if how != signal.SIGKILL:
        assert chaos.returncode == 128 + how
        assert err.startswith("holdfast: ending: ")
        assert err.count("\n") == 1
        assert "Stopped early: 0 of 1 runs were seen." in out
        assert "NOT CAUGHT" not in out
    eventually(lambda: not list(folder.iterdir()), "nothing to be left")


SLOW_TO_END = """
import time
from holdfast.cli.chaos.signals import Ended, ended_by_signals
def stay():
    while True:
        time.sleep(0.05)
with ended_by_signals():
    try:
        print("begun", flush=True)
        stay()
    except Ended:
        stay()
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_it_at_once(stage: Stage, how: signal.Signals) -> None:
    process = stage.start("-c", SLOW_TO_END, program=[sys.executable])
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.send_signal(how)
    assert "once more ends it at once" in process.stderr.readline()
    process.send_signal(how)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + how
    assert "ended at once" in err
    assert "Traceback" not in err


def test_an_impatient_user_leaves_nothing_behind(stage: Stage) -> None:
    folder = stage.folder / "tmp"
    folder.mkdir()
    words = ["--faults", "pause", "--duration", "60s", "--without-controls"]
    chaos = stage.start("chaos", *words, env=stage.environment(TMPDIR=str(folder)))
    assert chaos.stdout is not None
    assert chaos.stderr is not None
    while line := chaos.stdout.readline():
        if "stands still" in line:
            break
    chaos.send_signal(signal.SIGINT)
    assert "once more ends it at once" in chaos.stderr.readline()
    chaos.send_signal(signal.SIGINT)  # it may have ended in order by then
    _, err = chaos.communicate(timeout=LIMIT)
    assert chaos.returncode == 128 + signal.SIGINT
    assert "Traceback" not in err
    eventually(lambda: not running_in(folder), "the end of all that was started", LIMIT)
    eventually(lambda: not list(folder.iterdir()), "nothing to be left", LIMIT)


def test_a_machine_without_a_redis(stage: Stage) -> None:
    """The controls cannot be run: that is said, and asked for, before anything is."""
    programs = stage.folder / "programs"
    programs.mkdir()
    sleep = shutil.which("sleep")
    assert sleep is not None
    (programs / "sleep").symlink_to(sleep)
    env = stage.environment(PATH=str(programs))
    words = ["--faults", "pause", "--duration", "1s", "--seed", "3"]
    refused = ended(stage.start("chaos", *words, env=env), LIMIT)
    assert (refused.status, refused.out) == (2, "")
    assert "redis-server missing: apt-get install redis-server" in refused.err
    assert "--without-controls" in refused.err
    found = ended(stage.start("chaos", *words, "--without-controls", env=env), LIMIT)
    assert (found.status, found.err) == (0, ""), found.out
    assert "redis cannot be started here: redis-server missing" in found.out
    assert "the checker is not checked" in found.out
    assert "no known-bad lock was run" in found.out
    (line,) = [line for line in found.out.splitlines() if " stores " in line]
    assert len(line) < 200


def running_in(folder: Path) -> list[str]:
    """Returns the command lines of processes that were started with this temporary folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
