"""The live page in a real browser: what it shows is what the store holds, whatever happens."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from browser import Browser, Page
from holdfast.errors import ConfigError
from holdfast.service import Settings
from holdfast.service.views import participant_view
from service.page.showing import LIVE, ROWS, at, connect, opened
from service.running import Api, Process, running
from worlds.threads import Job


def count(page: Page, number: int) -> str:
    """Returns one of the counts at the top."""
    return str(page.run(f"document.querySelectorAll('.counts dd')[{number}].textContent"))


def test_it_shows_who_holds_and_who_waits_as_that_changes(
    browser: Browser, api: Api, url: str
) -> None:
    with (
        connect(url, "the-holder") as locks,
        connect(url, "the-waiter") as others,
        opened(browser, at(api)) as page,
    ):
        page.wait("document.querySelector('.empty')?.textContent.includes('Nothing is held')")
        lease = locks.lock("invoice:42").acquire()
        page.wait(f"{ROWS}.includes('invoice:42')")
        row = page.text(".row")
        assert "the-holder" in row
        assert f":{os.getpid()}" in row
        assert str(lease.token) in row
        assert count(page, 0) == "1"
        waiter = Job(others.lock("invoice:42").acquire)
        page.wait("document.querySelector('.row .waiting').textContent === '1'")
        lease.release()
        second = waiter.result()
        page.wait("document.querySelector('.row .holder').textContent.startsWith('the-waiter')")
        assert str(second.token) in page.text(".row")
        second.release()
        page.wait(f"{ROWS}.length === 0")


def test_a_prefix_and_the_order_are_in_the_address(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "one") as locks, connect(url, "two") as others:
        leases = [locks.lock(name).acquire() for name in ("a:1", "a:2", "b:1")]
        waiter = Job(others.lock("b:1").acquire)
        with opened(browser, at(api)) as page:
            page.wait(f"{ROWS}.join() === 'b:1,a:1,a:2'")  # the most waited for first
            page.press("/")
            page.send("Input.insertText", text="a:")
            page.wait(f"{ROWS}.join() === 'a:1,a:2'")
            assert "prefix=a%3A" in page.run("location.search")
            page.press("ArrowDown")
            page.press("ArrowDown")
            page.press("Enter")
            page.wait("document.querySelector('h1').textContent === 'a:2'")
            page.press("Escape")
            page.wait(f"{ROWS}.join() === 'a:1,a:2'")
            page.run("history.back(), history.back()")
        with opened(browser, at(api, prefix="b", sort="name")) as page:
            page.wait(f"{ROWS}.join() === 'b:1'")
            assert page.run("document.querySelector('select').value") == "name"
        for lease in leases:
            lease.release()
        waiter.result().release()


def test_a_lock_has_its_waiters_history_and_command(browser: Browser, api: Api, url: str) -> None:
    with (
        connect(url, "first") as locks,
        connect(url, "second") as others,
        opened(browser, at(api, lock="it's")) as page,
    ):
        page.wait("document.querySelector('main').innerText.includes('nobody holds it')")
        lease = locks.lock("it's").acquire()
        waiter = Job(others.lock("it's").acquire)
        page.wait("document.querySelectorAll('.plain li').length === 2")
        shown = page.text("main")
        assert "1. second" in shown.replace("\n", " ")
        command = page.text(".copy code")
        assert command.startswith("holdfast show --url http://127.0.0.1:")
        assert command.endswith(" --namespace second -- 'it'\\''s'")
        told_there = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        assert str(lease.token) in told_there
        lease.release()
        second = waiter.result()
        page.wait("document.querySelectorAll('.timeline .hold').length === 2")
        told = page.run(
            "[...document.querySelectorAll('.timeline .hold')]"
            ".map(e => e.getAttribute('aria-label'))"
        )
        assert told[0].startswith(f"first held it as {lease.token} for ")
        assert told[0].endswith(": released")
        assert told[1].endswith(": holds it now")
        second.release()


def test_a_pause_is_in_the_history(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "sleepy") as locks, opened(browser, at(api)) as page:
        lease = locks.lock("x").acquire()
        page.wait(f"{ROWS}.includes('x')")
        service = api.app.service  # type: ignore[union-attr]
        (holder,) = locks.inspect("x").holders
        late = {**participant_view(holder), "left": 1.5}
        service.watcher(service.store("second"))._add("late", "x", late)
        page.open(at(api, lock="x"))
        page.wait("document.querySelectorAll('.timeline .pause').length === 1")
        told = page.run("document.querySelector('.timeline .pause').getAttribute('aria-label')")
        assert told.startswith("sleepy was late to renew at ")
        assert "1.5 s left at the most" in told
        lease.release()


def test_a_chaos_report_is_opened_in_an_origin_of_its_own(
    browser: Browser, url: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    report.write_text(
        "<!DOCTYPE html><title>A report</title><script>document.title = 'it ran';"
        "try { localStorage.length } catch { document.title = 'alone' }"
        "fetch('/v1/me').catch(() => { document.title += ', and asks for nothing' })</script>"
    )
    with running(url, look_every=0.05, chaos_report=str(report)) as (api, _):
        with opened(browser, at(api, view="store")) as page:
            page.wait("document.querySelector('main').innerText.includes('Open the report')")
            link = page.run("document.querySelector('main a[target]').href")
        page = browser.page()
        try:
            page.open(link)
            page.wait("document.title === 'alone, and asks for nothing'")
        finally:
            page.close()
        report.unlink()
        assert api.get("/v1/chaos-report").status_code == 404
        os.mkfifo(report)  # nobody writes to it: who waits for that never stops
        assert api.get("/v1/chaos-report").status_code == 404
    with pytest.raises(ConfigError, match="cannot be read"):
        Settings(url=url, chaos_report=str(report))


def test_a_deadlock_is_marked_and_spelled_out(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "alice") as alice, connect(url, "bob") as bob:
        leases = [alice.lock("x").acquire(), bob.lock("y").acquire()]
        waiters = [Job(alice.lock("y").acquire), Job(bob.lock("x").acquire)]
        with opened(browser, at(api)) as page:
            page.wait("document.querySelector('.deadlock')?.innerText.includes('Deadlock')")
            assert "bob" in page.text(".deadlock")
            page.wait("document.querySelectorAll('.row.stuck').length === 2")
            page.click(".deadlock a")
            page.wait("document.querySelectorAll('.graph path.stuck').length === 4")
            assert "waits for “y”, which is held by bob" in page.text(".deadlock")
        for lease in leases:
            lease.release()
        for waiter in waiters:
            waiter.result().release()


def test_a_deadlock_of_programs_that_run_inside_others(
    browser: Browser, api: Api, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each outer one gives back what it holds when the one inside has ended; the two are one box."""
    with connect(url, "alice") as alice, connect(url, "bob") as bob, ExitStack() as inside:
        leases = [alice.lock("x").acquire(), bob.lock("y").acquire()]
        waiters = []
        for lease, name in zip(leases, "yx", strict=True):
            monkeypatch.setenv("HOLDFAST_INSIDE", lease.owner[:10])
            inner = inside.enter_context(connect(url, "inner"))
            waiters.append(Job(inner.lock(name).acquire))
        with opened(browser, at(api, lock="x")) as page:
            page.wait("document.querySelectorAll('.graph path.stuck').length === 4")
            page.wait("document.querySelectorAll('.graph .party.stuck').length === 2")
            assert "is held by bob" in page.text(".deadlock")
            assert page.text(".deadlock").count("which runs inner") == 2
        for lease in leases:
            lease.release()
        for waiter in waiters:
            waiter.result().release()


def test_a_lock_is_forced_free_after_a_question(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "stuck") as locks:
        lease = locks.lock("x", ttl=120.0).acquire()
        with opened(browser, at(api, lock="x")) as page:
            page.wait("!document.querySelector('.titled .danger').hidden")
            page.click(".titled .danger")
            page.wait("document.querySelector('dialog').open")
            told = page.text("dialog")
            assert "stuck" in told
            assert str(lease.token) in told
            assert page.run("document.activeElement.textContent") == "Cancel"
            page.press("Escape")
            page.wait("!document.querySelector('dialog').open")
            assert locks.inspect("x").held
            page.click(".titled .danger")
            page.click("dialog .danger")
            page.wait("document.querySelector('main').innerText.includes('nobody holds it')")
            assert not locks.inspect("x").held
            page.wait("document.querySelector('.timeline .hold.forced') !== null")


def test_a_service_that_was_away_is_found_again(browser: Browser, url: str) -> None:
    with connect(url, "one") as locks:
        locks.list()
        service = Process("--port", "0", "--namespace", "second", "--url", url)
        page = browser.page()
        try:
            api = service.api()
            port = api.url.rpartition(":")[2]
            page.open(f"{api.url}/")
            page.wait(LIVE)
            service.close()
            page.wait(
                "document.querySelector('[data-live]').textContent.startsWith('disconnected')"
            )
            assert "last update" in page.text("[data-live]")
            lease = locks.lock("meanwhile").acquire()
            service = Process("--port", port, "--namespace", "second", "--url", url)
            service.api()
            page.wait(f"{ROWS}.join() === 'meanwhile'")
            page.wait(LIVE)
            lease.release()
        finally:
            page.close()
            service.close()
