"""The live page in a real browser: what it shows is what the store holds, whatever happens."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from browser import Browser, Page
from holdfast.errors import ConfigError
from holdfast.service import Settings
from holdfast.service import page as static
from holdfast.service.views import participant_view
from service.running import Api, Process, running
from service.security.served import make_token, serve
from worlds.threads import Job

AXE = Path(sys.prefix) / "axe/node_modules/axe-core/axe.min.js"
HOSTILE = '<img src=x onerror="window.hurt = 1">'
ROWS = "[...document.querySelectorAll('.row a')].map(a => a.textContent)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def api(url: str) -> Iterator[Api]:
    with running(url, look_every=0.05) as (api, _):
        yield api


@contextmanager
def opened(browser: Browser, address: str, **size: Any) -> Iterator[Page]:
    """Opens the page, waits until it is live, and sees that it complained of nothing."""
    page = browser.page(**size)
    try:
        page.open(address)
        page.wait("document.querySelector('[data-live]').textContent === 'live'")
        yield page
        assert page.errors == []
        outside = [one for one in page.requests if not one.startswith(address.partition("?")[0])]
        assert outside == []
    finally:
        page.close()


def count(page: Page, number: int) -> str:
    """Returns one of the counts at the top."""
    return str(page.run(f"document.querySelectorAll('.counts dd')[{number}].textContent"))


def at(api: Api, **query: str) -> str:
    from urllib.parse import urlencode

    namespaced = {"namespace": "second", **query}
    return f"{api.url}/?{urlencode(namespaced)}"


def connect(url: str, label: str) -> holdfast.Locks:
    return holdfast.connect(url, namespace="second", label=label)


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


@pytest.mark.parametrize("width", [1440, 800, 390])
def test_what_is_shown_of_a_lock_is_legible(
    browser: Browser, api: Api, url: str, width: int
) -> None:
    with connect(url, "the one that holds them all") as locks:
        for name, ttl in (("a", 119.0), ("b", 3599.0), ("c", 86399.0), ("d", 99.9 * 86400)):
            locks.lock(name, ttl=ttl).acquire()
        with opened(browser, at(api), width=width) as page:
            page.wait(f"{ROWS}.length === 4")
            page.wait("document.querySelector('.drain > span').textContent !== ''")
            cut = page.run(
                "[...document.querySelectorAll('.drain > span, .since')]"
                ".filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
            )
            assert cut == []
            page.open(at(api, lock="b"))
            page.wait("document.querySelectorAll('.timeline text').length > 2")
            page.frames()
            shrunk = page.run(
                "(() => { const svg = document.querySelector('.timeline');"
                " return svg.clientWidth / svg.viewBox.baseVal.width; })()"
            )
            assert shrunk > 0.95
            beyond = page.run(
                "(() => { const svg = document.querySelector('.timeline').getBoundingClientRect();"
                " return [...document.querySelectorAll('.timeline text')]"
                ".map(one => one.getBoundingClientRect())"
                ".filter(one => one.left < svg.left - 1 || one.right > svg.right + 1).length; })()"
            )
            assert beyond == 0


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
            page.wait("document.querySelector('[data-live]').textContent === 'live'")
            service.close()
            page.wait(
                "document.querySelector('[data-live]').textContent.startsWith('disconnected')"
            )
            assert "last update" in page.text("[data-live]")
            lease = locks.lock("meanwhile").acquire()
            service = Process("--port", port, "--namespace", "second", "--url", url)
            service.api()
            page.wait(f"{ROWS}.join() === 'meanwhile'")
            page.wait("document.querySelector('[data-live]').textContent === 'live'")
            lease.release()
        finally:
            page.close()
            service.close()


def test_hostile_names_stay_text(browser: Browser, api: Api, url: str) -> None:
    with connect(url, HOSTILE) as locks, connect(url, HOSTILE) as others:
        lease = locks.lock(HOSTILE).acquire()
        waiter = Job(others.lock(HOSTILE).acquire)
        with opened(browser, at(api)) as page:
            page.wait(f"{ROWS}.includes({json.dumps(HOSTILE)})")
            page.click(".row a")
            page.wait("document.querySelectorAll('.plain li').length === 2")
            page.run(
                "document.querySelector('.titled .danger').click(), "
                "document.querySelector('dialog').close()"
            )
            assert page.run("window.hurt") is None
            assert page.run("document.querySelectorAll('img').length") == 0
        lease.release()
        waiter.result().release()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_everybody_can_use_it(
    browser: Browser, api: Api, url: str, scheme: str, width: int
) -> None:
    """Stands for phones, dark rooms, keyboards and screen readers: axe-core finds nothing wrong."""
    with connect(url, "one") as locks, connect(url, "two") as others:
        lease = locks.lock("x").acquire()
        waiter = Job(others.lock("x").acquire)
        with opened(browser, at(api), width=width) as page:
            page.prefer(color_scheme=scheme, reduced_motion="reduce")
            for query in ({}, {"lock": "x"}, {"view": "store"}):
                page.open(at(api, **query))
                page.wait("document.querySelector('[data-live]').textContent === 'live'")
                page.wait("!document.querySelector('main').innerText.includes('Loading')")
                page.frames()
                wide = (
                    "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
                )
                assert page.run(wide)
                if "axe" not in os.environ.get("WITHOUT", "").split():
                    assert page.violations(AXE.read_text("utf-8")) == []
        lease.release()
        waiter.result().release()


def test_ten_thousand_locks_are_few_elements(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "many") as locks:
        for first in range(0, 10_000, 100):
            names = [f"lock:{first + number:05}" for number in range(100)]
            locks.multi(names, ttl=600.0).acquire()
        with opened(browser, at(api, sort="name")) as page:
            page.wait("document.querySelector('.shown').textContent === '10,000 locks'")
            assert page.run("document.querySelectorAll('.row').length") < 60
            page.run("document.querySelector('.scroller').scrollTop = 1e9")
            page.wait(f"{ROWS}.includes('lock:09999')")
            assert page.run("document.querySelectorAll('.row').length") < 60


FLOOD = """(async () => {
  const { Live } = await import('./page/live.js');
  const live = new Live(() => {});
  for (let number = 0; number < 20000; number += 1) {
    const event = { name: `lock:${number % 3000}`, owner: `o${number}`, at: number, token: number };
    live._take('granted', { ...event, remaining: 30, label: {} }, null);
    live._take('released', event, null);
  }
  const kept = [...live.histories.values()].flat();
  return [kept.length, Math.min(...kept.map((one) => one.at)), live.locks.size];
})()"""


def test_the_page_remembers_the_latest_events_alone(browser: Browser, api: Api) -> None:
    with opened(browser, at(api)) as page:
        assert page.run(FLOOD) == [4000, 18000, 0]


def test_what_a_token_does_not_cover_is_not_shown(browser: Browser, tmp_path: Path) -> None:
    text = make_token(tmp_path / "tokens.json", "read", "mine:")
    with (
        serve(tmp_path, look_every=0.05) as served,
        holdfast.connect(f"sqlite://{tmp_path}/locks.db") as locks,
    ):
        leases = [locks.lock(name).acquire() for name in ("mine:1", "theirs:1")]
        page = browser.page()
        page.open(f"{served.url}/")
        page.wait("document.querySelector('#token') !== null")
        page.send("Input.insertText", text="hf_wrong")
        page.press("Enter")
        page.wait(
            "document.querySelector('[role=alert]:not([hidden])')?.textContent.includes('not known')"
        )
        page.run("document.querySelector('#token').value = ''")
        page.run("document.querySelector('#token').focus()")
        page.send("Input.insertText", text=text)
        page.press("Enter")
        page.wait(f"{ROWS}.join() === 'mine:1'")
        assert text not in "".join(page.requests)
        assert page.run("document.cookie") == ""
        assert (
            page.run("Object.keys(localStorage).length + Object.keys(sessionStorage).length") == 0
        )
        page.open(f"{served.url}/?lock=mine:1")
        page.wait("document.querySelectorAll('.plain li').length === 1")
        assert page.run("document.querySelector('.titled .danger').hidden") is True
        page.click("[data-logout]")
        page.wait("document.querySelector('#token') !== null")
        page.close()
        for lease in leases:
            lease.release()


def test_it_is_small_and_has_no_script_of_its_own_in_the_document() -> None:
    folder = Path(static.__file__).parent / "static"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 150_000
    document = (folder / "index.html").read_text()
    assert document.count("<script") == 1
    assert "style=" not in document
