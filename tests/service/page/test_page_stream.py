"""The live page and its stream: out of sight, behind a bad network, and with a store that is away."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from browser import Browser, Page
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import redlock_nodes
from service.page.showing import LIVE, ROWS, at, connect, opened
from service.running import LIMIT, Api, Process, eventually
from service.security.served import make_token, serve

STATUS = "document.querySelector('[data-live]').textContent"
MAIN = "document.querySelector('main').innerText"
FINDINGS = "[...document.querySelectorAll('.finding .chip')].map(one => one.textContent)"


@contextmanager
def out_of_sight(browser: Browser, page: Page) -> Iterator[None]:
    """Has another tab in front of the page."""
    other = browser.page()
    try:
        page.wait("document.hidden")
        yield
        page.send("Page.bringToFront")
        page.wait("!document.hidden")
    finally:
        other.close()


def streams(page: Page) -> int:
    """Returns how often the page has opened the stream."""
    return sum("/v1/events" in one for one in page.requests)


def test_a_page_out_of_sight_keeps_no_connection(browser: Browser, api: Api, url: str) -> None:
    """A browser has six to a service: as many tabs would keep all of them."""
    service = api.app.service  # type: ignore[union-attr]
    watcher = service.watcher(service.store("second"))
    with connect(url, "one") as locks, opened(browser, at(api)) as page:
        page.run(
            f"window.said = [], new MutationObserver(() => window.said.push({STATUS})).observe("
            "document.querySelector('[data-live]'),"
            " { subtree: true, characterData: true, childList: true })"
        )
        with out_of_sight(browser, page):
            eventually(lambda: len(watcher) == 0, "the stream is closed")
            lease = locks.lock("meanwhile").acquire()
        page.wait(f"{ROWS}.join() === 'meanwhile'")
        page.wait(LIVE)
        assert page.run("window.said[0]").startswith("connecting, last update ")
        assert len(watcher) == 1
        lease.release()
        page.wait(f"{ROWS}.length === 0")


def test_a_page_that_was_left_keeps_no_connection(browser: Browser, api: Api, url: str) -> None:
    """A browser may keep a page that was left, as it was, for whoever comes back."""
    service = api.app.service  # type: ignore[union-attr]
    watcher = service.watcher(service.store("second"))
    with connect(url, "one") as locks, opened(browser, at(api)) as page:
        assert len(watcher) == 1
        page.run("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
        eventually(lambda: len(watcher) == 0, "the stream is closed")
        with locks.lock("meanwhile"):
            page.run("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
            page.wait(f"{ROWS}.join() === 'meanwhile'")
        for number in range(8):
            page.open(at(api, search=str(number)))
            page.wait(LIVE)
        eventually(lambda: len(watcher) == 1, "one page, one stream")


def test_a_page_that_was_hidden_for_a_moment_keeps_its_stream(browser: Browser, api: Api) -> None:
    with opened(browser, at(api)) as page:
        with out_of_sight(browser, page):
            pass
        page.frames()
        assert page.run(STATUS) == "live"
        assert streams(page) == 1


HANGING = """(async () => {
  const { Live } = await import('./page/live.js');
  const real = [window.EventSource, window.fetch];
  const made = [];
  window.EventSource = class {
    static CLOSED = 2;
    readyState = 0;
    constructor() { made.push(this); }
    addEventListener() {}
    close() { this.readyState = 2; }
  };
  window.fetch = () => Promise.reject(new Error('cut'));
  const live = new Live(() => {});
  const later = (seconds) => { live._alive -= seconds * 1000; live.check(); };
  const seen = [];
  const until = async (true_) => { while (!true_()) await new Promise(requestAnimationFrame); };
  try {
    live.start();
    later(20);
    seen.push(made[0].readyState);
    later(11);
    seen.push(made[0].readyState);
    await until(() => made.length === 2);
    seen.push(live.state);
    later(31);
    await until(() => made.length === 3);
    seen.push(made.map((one) => one.readyState).join());
    live.rest();
    live._cut(made[2]);
    live.wake();
    live._cut(made[2]);
    live.check();
    seen.push(made.map((one) => one.readyState).join());
  } finally {
    [window.EventSource, window.fetch] = real;
    live.stop();
  }
  return seen;
})()"""


def test_an_attempt_that_hangs_is_given_up(browser: Browser, api: Api) -> None:
    """A network that swallowed all for a while may still swallow what was begun then."""
    with opened(browser, at(api)) as page:
        assert page.run(HANGING) == [0, 2, "cut", "2,2,0", "2,2,2,0"]


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        yield server
    finally:
        server.stop()


def test_looks_are_told_while_the_store_is_away(redis: RedisServer) -> None:
    """Whoever hears nothing takes the service for gone."""
    service = Process("--port", "0", "--url", redis.url)
    try:
        api = service.api()
        looks: list[dict[str, float]] = []
        away = False
        give_up = time.monotonic() + LIMIT
        with api.http.stream("GET", "/v1/events", params={"looks": "true"}) as answer:
            kind = ""
            for line in answer.iter_lines():
                assert time.monotonic() < give_up, "looks are not told"
                key, _, value = line.partition(": ")
                kind = value if key == "event" else kind
                if key != "data":
                    continue
                if kind == "look" and not away:
                    redis.kill()
                away = away or kind == "unreachable"
                if kind == "look" and away:
                    looks.append(json.loads(value))
                if len(looks) == 3:
                    break
        assert looks[0]["at"] < looks[1]["at"] < looks[2]["at"]
        # By the age of what was seen: somebody may set the machine's clock meanwhile.
        ages = [look["at"] - look["seen_at"] for look in looks]
        assert 0 < ages[0] < ages[1] < ages[2]
    finally:
        service.close()


def test_what_is_shown_of_a_store_that_is_away_is_as_old_as_it_is(
    browser: Browser, redis: RedisServer
) -> None:
    service = Process("--port", "0", "--url", redis.url)
    page = browser.page()
    held = "parseFloat(document.querySelector('.row .since').textContent)"
    age = f"parseFloat({STATUS}.split(' ')[2])"
    try:
        address = f"{service.api().url}/"
        with holdfast.connect(redis.url, label="one") as locks:
            locks.lock("x", ttl=600.0).acquire()
            page.open(address)
            page.wait(f"{ROWS}.join() === 'x'")
            redis.kill()
            killed = time.monotonic()
            page.wait("!document.querySelector('[data-notice]').hidden")
            for _ in ("open already", "opened now"):
                page.wait(f"{STATUS}.startsWith('last update')")
                away = time.monotonic() - killed
                assert page.run(age) > away - 3.0
                before = page.run(held)
                page.wait(f"{age} > {away + 3.0}")
                # It would have counted on by 3 s. (The machine's clock may be set by a little.)
                assert page.run(held) == pytest.approx(before, abs=1.0)
                assert page.run("document.querySelector('[data-live]').className") == "live late"
                assert streams(page) == 1
                page.requests.clear()
                page.open(address)
    finally:
        page.close()
        service.close()


def test_the_page_of_a_store_that_goes_away_does_not_call_it_well(
    browser: Browser, redis: RedisServer
) -> None:
    service = Process("--port", "0", "--url", redis.url)
    page = browser.page()
    try:
        page.open(f"{service.api().url}/?view=store")
        page.wait(f"{FINDINGS}.includes('ok')")
        page.wait(f"{MAIN}.includes('What it promises')")
        redis.kill()
        page.wait(f"{MAIN}.includes('cannot be examined')")
        assert page.run(FINDINGS) == []
        redis.start()
        page.wait(f"{FINDINGS}.includes('ok')")
        assert "Examined " in page.text("main")
    finally:
        page.close()
        service.close()


def test_a_node_that_goes_out_is_told_on_the_page_of_the_store(browser: Browser) -> None:
    with redlock_nodes(3) as nodes:
        service = Process("--port", "0", "--url", nodes.url)
        page = browser.page()
        try:
            with holdfast.connect(nodes.url) as locks:
                locks.lock("x").acquire()
            page.open(f"{service.api().url}/?view=store")
            page.wait(f"{FINDINGS}.includes('ok')")
            assert "Nodes that do not vote" not in page.text("main")
            nodes.nodes[1].kill()
            page.wait(f"{MAIN}.includes('Nodes that do not vote')")
            out = page.text("ul li")
            assert out.startswith(f"127.0.0.1:{nodes.nodes[1].port}: ")
            levels = page.run(FINDINGS)
            assert levels == sorted(levels, key=["wrong", "warning", "note", "ok"].index)
            assert page.run("document.querySelectorAll('.finding code').length") == 0
            assert "Mend: start it" in page.text("main")
            old = page.run(f"{MAIN}.match(/Examined (.*) ago/)[1]")
            page.wait(f"{MAIN}.match(/Examined (.*) ago/)[1] !== '{old}'")
        finally:
            page.close()
            service.close()


LOST = """(async () => {
  const { Live } = await import('./page/live.js');
  const { ListView } = await import('./page/list.js');
  const live = new Live(() => {});
  const view = new ListView(live, { get: () => '', link: () => '?', set() {} });
  const seen = [];
  const title = () => [...view.element.querySelectorAll('dt')][2].textContent;
  live._begin({ at: 5000, seen_at: 5000, since: 4000, lost: [], grants: [], number: 0, locks: [] });
  view.update();
  seen.push(title().replace(/since .*/, 'since …'));
  live.offset += 2700;
  view.tick();
  seen.push(title());
  view.close();
  return seen;
})()"""


def test_losses_are_told_with_the_time_since_when_they_are_counted(
    browser: Browser, api: Api
) -> None:
    with opened(browser, at(api)) as page:
        page.wait("document.querySelector('.counts').innerText.includes('Lost since ')")
        assert page.run(LOST) == ["Lost since …", "Lost in the last hour"]


def test_links_of_the_head_keep_the_namespace(browser: Browser, api: Api) -> None:
    """A click with the middle button, or a link that is copied, goes where a plain click goes."""
    with opened(browser, at(api, lock="x", sort="name")) as page:
        links = "[...document.querySelectorAll('header a')].map(one => one.getAttribute('href'))"
        home = "?namespace=second&sort=name"
        assert page.run(links) == [home, f"{home}&view=store"]
        page.click("header .store")
        page.wait(f"location.search === '{home}&view=store'")
        page.click("header .home")
        page.wait(f"location.search === '{home}'")
        page.press("/")
        page.send("Input.insertText", text="a")
        page.wait(f"{links}.join(' ') === '{home} {home}&prefix=a&view=store'")


def test_the_log_in_names_a_command_that_works(browser: Browser, tmp_path: Path) -> None:
    text = make_token(tmp_path / "tokens.json", "read", "mine:")
    with serve(tmp_path, look_every=0.05) as served:
        page = browser.page()
        try:
            page.open(f"{served.url}/?view=store")
            page.wait("document.querySelector('#token') !== null")
            assert (
                page.run("getComputedStyle(document.querySelector('[data-live]')).display")
                == "none"
            )
            command = shlex.split(page.text(".login code"))
            made = subprocess.run(
                [sys.executable, "-m", *command, "--token-file", str(tmp_path / "tokens.json")],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            assert made.stdout.startswith("holdfast_")
            page.send("Input.insertText", text=text)
            page.press("Enter")
            page.wait(LIVE)
            page.wait(f"{MAIN}.includes('Agreement behind a grant')")
            page.errors.clear()  # of the log-in
            assert "does not cover the whole store" in page.text("main")
            page.frames()
            assert page.errors == []
            assert not [one for one in page.requests if "/v1/doctor" in one]
        finally:
            page.close()
