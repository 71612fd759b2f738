"""Campaigns without a server: what is asked for, what is left out, how a run that fails is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.chaos import peers, table
from holdfast.chaos.campaign import Campaign
from holdfast.chaos.labs import LABS, lab, own_lab
from holdfast.chaos.labs.sqlite import SqliteLab
from holdfast.chaos.peers import PEERS
from holdfast.chaos.report import report_of
from holdfast.chaos.servers.errors import ServerError
from holdfast.chaos.setup import Setup
from holdfast.cli.arguments import UsageError, read
from holdfast.cli.chaos import request as chaos_request
from holdfast.cli.chaos.request import OPTIONS, Request
from holdfast.cli.chaos.show import complaints, summary

DOCS = Path(__file__).parents[2] / "docs"


def commands() -> set[str]:
    """Returns what follows `holdfast chaos` in the docs, without those for a library of any NAME."""
    text = "\n".join(page.read_text() for page in sorted(DOCS.rglob("*.md")))
    found = re.findall(r"holdfast chaos (--\w+ [^`\n|#]+?)(?:   |  #|`|\n)", text)
    return {words for words in found if "NAME" not in words}


def test_there_are_commands_in_the_docs() -> None:
    assert len(commands()) > 10


@pytest.mark.parametrize("command", sorted(commands()))
def test_a_command_of_the_docs_is_not_refused(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    request = Request(read(command.split(), OPTIONS).options)
    assert request.setups
    assert request.skipped == []


@pytest.mark.parametrize(
    "url", ["sqlite:///{}/locks.db", "rediss://127.0.0.1:1", "redis://127.0.0.1:1"]
)
def test_a_store_of_yours_gets_the_faults_that_fit_it(tmp_path: Path, url: str) -> None:
    url = url.format(tmp_path)
    request = Request({"--url": url})
    assert request.skipped == []  # nothing was asked for by name
    ours = [setup.fault for setup in request.setups if not setup.control]
    assert tuple(ours) == own_lab(url).faults
    assert ("partition" in ours) == (url == "redis://127.0.0.1:1")


def test_a_fault_that_cannot_be_done_fails_its_run(tmp_path: Path) -> None:
    setup = Setup("sqlite", "partition", 3, duration=1.0, workers=2)
    url = f"sqlite:///{tmp_path}/locks.db"
    (run,) = Campaign([setup], lambda *_: None, url).run()
    assert not run["passed"]
    assert "partition cannot be done here" in run["error"]


def test_what_was_asked_for_by_name_is_not_left_out_without_a_word(tmp_path: Path) -> None:
    options = {"--backend": "sqlite,redis", "--faults": "pause,reset"}
    request = Request(options)
    skipped = request.skipped
    ours = [(setup.store, setup.fault) for setup in request.setups if not setup.control]
    assert ours == [("sqlite", "pause"), ("redis", "pause"), ("redis", "reset")]
    ((store, fault, why),) = skipped
    assert (store, fault) == ("sqlite", "reset")
    assert "has nothing that" in why
    report = report_of([], "holdfast chaos", 3, 2.0, [one._asdict() for one in skipped])
    assert report["skipped"] == [{"store": store, "fault": fault, "why": why}]
    with pytest.raises(UsageError, match="reset can be done to none of these stores"):
        Request({**options, "--backend": "sqlite"})


def test_a_campaign_that_was_stopped_has_not_passed() -> None:
    run: dict[str, Any] = {"control": None, "events": [], "passed": True}
    whole = report_of([run], "holdfast chaos", 3, 2.0)
    early = report_of([run], "holdfast chaos", 3, 2.0, stopped=True)
    assert (whole["passed"], whole["stopped"]) == (True, False)
    assert (early["passed"], early["stopped"]) == (False, True)


def test_a_library_that_promises_nothing_has_kept_no_promise() -> None:
    run: dict[str, Any] = {
        "library": "redis-py",
        "control": None,
        "stopped": False,
        "passed": True,
        "events": [],
    }
    report = report_of([run], "holdfast chaos", 3, 1.0)
    assert summary(report, 1) == (
        "Done: redis-py promises nothing, see what happened; no known-bad lock was run."
    )


@pytest.mark.parametrize(
    ("stopped", "verdict", "count"), [(True, "stopped", 0), (False, "NOT CAUGHT", 1)]
)
def test_a_control_that_was_stopped_is_not_blamed(stopped: bool, verdict: str, count: int) -> None:
    run = {"control": "fence", "stopped": stopped, "passed": False, "verdicts": []}
    assert table._verdict(run).text == verdict
    assert len(list(complaints(run))) == count


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"--url": "redis://ada:hunter2@x"}, "--url URL"),
        (
            {"--workers": "3", "--without-controls": "", "--json": ""},
            "--workers 3 --without-controls",
        ),
    ],
)
def test_the_command_that_repeats_a_campaign(given: dict[str, str], said: str) -> None:
    assert Request({**given, "--seed": "3"}).command == f"holdfast chaos {said} --seed 3"


def test_a_campaign_whose_runs_are_kept_goes_on(tmp_path: Path) -> None:
    """Next time it has the same seed, or none of its runs would be found again."""
    kept = {"--backend": "sqlite", "--grants": "9", "--state": str(tmp_path / "made" / "runs")}
    kept["--without-controls"] = ""
    assert [Request(kept).seed for _ in range(2)] == [1, 1]
    assert Request({**kept, "--seed": "7"}).seed == 7
    assert (tmp_path / "made" / "runs").is_dir()


def test_a_run_without_any_fault_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ServerError("strace may not attach")

    monkeypatch.setattr(lab, "Trace", refuse)
    setup = Setup("sqlite", "kill-at-call", 3, duration=1.0, workers=2)
    (run,) = Campaign([setup], lambda *_: None, f"sqlite:///{tmp_path}/locks.db").run()
    assert run["figures"]["grants"] > 0
    assert run["figures"]["faults"] == 0
    assert run["passed"] is None
    assert run["not_judged"] == "no fault could be done: strace may not attach"
    assert list(complaints(run)) == [f"not judged: {run['not_judged']}"]
    assert table.row(run)[-1] == ("NOT JUDGED: no fault", table.BAD)
    report = report_of([run], "holdfast chaos", 3, 1.0)
    assert report["passed"] is False
    assert summary(report, 1) == (
        "FAILED: 0 runs of 1 broke a promise; in 1 run no fault could be done; "
        "no known-bad lock was run."
    )


NO_REDIS = {**dict.fromkeys(LABS), "redis": "redis-server missing", "redis+replica": "the same"}


def test_without_a_redis_the_controls_are_not_left_out_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chaos_request, "startable", lambda: NO_REDIS)
    with pytest.raises(
        UsageError, match=r"redis-server missing; the same\. Or .*--without-controls"
    ):
        Request({"--backend": "sqlite"})
    request = Request({"--without-controls": ""})
    assert {setup.store for setup in request.setups} == {"sqlite"}
    assert request.remarks == [
        "redis cannot be started here: redis-server missing. sqlite is broken in its place"
    ]


@pytest.mark.parametrize("library", list(PEERS))
def test_a_library_that_is_missing_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda module: None)
    with pytest.raises(UsageError, match=rf"{library} cannot be used here: .* pip install \w+"):
        Request({"--library": library})
    with pytest.raises(UsageError, match=r"module redis missing: pip install redis\. Or"):
        Request({"--backend": "sqlite"})


def test_no_store_for_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {**NO_REDIS, "zookeeper": "java missing: apt-get install default-jre-headless"}
    monkeypatch.setattr(chaos_request, "startable", lambda: missing)
    with pytest.raises(UsageError, match="no store for kazoo can be started here: zookeeper: java"):
        Request({"--library": "kazoo"})


@pytest.mark.parametrize("given", ["all", "sqlite,all", "all,etcd"])
def test_all_may_stand_beside_names(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {**dict.fromkeys(LABS), "zookeeper": "java missing"}
    monkeypatch.setattr(chaos_request, "startable", lambda: missing)
    request = Request({"--backend": given, "--faults": "pause,all"})
    ours = {setup.store for setup in request.setups if not setup.control}
    assert ours == set(LABS) - {"zookeeper"}
    with pytest.raises(UsageError, match="zookeeper cannot be started here: java missing"):
        Request({"--backend": "all,zookeeper"})


def test_a_fault_that_hit_nothing_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteLab, "calls", "?sync_file_range")  # which nobody calls
    told: list[str] = []
    setup = Setup("sqlite", "kill-at-call", 3, duration=1.0, workers=2)
    (run,) = Campaign([setup], lambda _, at, text: told.append(text)).run()
    assert run["figures"]["faults"] == 0
    assert run["figures"]["missed"] == 3  # it was tried again, twice
    assert [text for text in told if text.startswith("hit nothing: w")]
    assert run["passed"] is None
    assert run["not_judged"].startswith("no fault hit anything: w")
    assert {event["kind"] for event in run["events"]} & {"fault", "miss"} == {"miss"}
    assert table.row(run)[2] == ("0, 3 hit nothing", table.NOTABLE)
    assert table.row(run)[-1] == ("NOT JUDGED: hit nothing", table.BAD)
    assert "; in 1 run no fault hit anything; " in summary(report_of([run], "", 3, 1.0), 1)
