"""The audit log: one line for each forced release, which says by whom, and lets nobody in."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from holdfast import BackendUnavailable
from holdfast.service.lease_watch import WatchedBackend
from service.security.served import Served


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    found = [
        json.loads(record.getMessage())
        for record in caplog.records
        if record.name == "holdfast.audit"
    ]
    return [line for line in found if line["event"] == event]


def test_a_forced_release_is_written_down(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = served.token("admin", "audit:", name="Ada\u2603")
    with served.as_(token) as client:
        body = {"owner": "o-1", "label": {"host": "h", "pid": 7, "text": "nightly <b>"}}
        before = client.post("/v1/locks/audit:1/acquire", json=body).json()["token"]
        after = client.delete("/v1/locks/audit:1").json()["token"]
    (line,) = lines(caplog, "forced-release")
    assert line["lock"] == "audit:1"
    assert line["released"] is True
    assert (line["token_before"], line["token_after"]) == (before, after)
    assert line["token_id"] == token.split("_")[1]
    assert line["by"].startswith("Ada\u2603")
    assert line["address"] == "127.0.0.1"
    assert line["holders"] == [{"owner": "o-1", "label": "nightly <b> (h:7)"}]
    for record in caplog.records:
        text = record.getMessage()
        assert token[20:] not in text
        if record.name == "holdfast.audit":
            assert text.isascii()
            assert text.isprintable()


def test_what_was_refused_is_no_forced_release(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with served.as_(served.token("hold")) as client:
        assert client.delete("/v1/locks/audit:2").status_code == 403
    assert lines(caplog, "forced-release") == []


def test_a_lock_that_nobody_holds(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with served.as_(served.token("admin")) as client:
        assert client.delete("/v1/locks/audit:3").json()["released"] is False
    (line,) = lines(caplog, "forced-release")
    assert (line["released"], line["holders"]) == (False, [])


def test_log_ins_are_written_down(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    token = served.token("read", name="Ada")
    with served.as_() as client:
        client.post("/v1/session", json={"token": token})
        client.post("/v1/session", json={"token": token[:-1] + "_"})
    (line,) = lines(caplog, "log-in")
    assert (line["by"], line["token_id"]) == ("Ada", token.split("_")[1])
    (line,) = lines(caplog, "log-in-refused")
    assert line["address"] == "127.0.0.1"
    assert token[20:-1] not in caplog.text


def test_one_that_was_not_answered_is_written_down_too(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store may have done it all the same."""

    async def fail(*words: object) -> bool:
        raise BackendUnavailable("no answer")

    monkeypatch.setattr(WatchedBackend, "force_release", fail)
    with served.as_(served.token("admin")) as client:
        assert client.delete("/v1/locks/audit:4").status_code == 503
    (line,) = lines(caplog, "forced-release")
    assert line["failure"] == "BackendUnavailable"
    assert "released" not in line
