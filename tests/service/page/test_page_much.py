"""The live page when there is much: ten thousand locks, many changes, and little that is loaded."""

from __future__ import annotations

import re
import time
from pathlib import Path

from browser import PATIENCE, Browser
from holdfast.service import page as static
from service.page.showing import ROWS, at, connect, opened
from service.running import Api


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


ARRANGED = """(async () => {
  const { Live } = await import('./page/live.js');
  const { ListView } = await import('./page/list.js');
  const live = new Live(() => {});
  const view = new ListView(live, { get: () => '', link: () => '?', set() {} });
  document.querySelector('main').replaceChildren(view.element);
  view.update();
  const label = { host: 'h', pid: 1, text: 't' };
  const holder = { owner: 'o', label, token: 1, since: 1, remaining: 30, weight: 1 };
  const lock = { name: 'x', kind: 'lock', capacity: 1, token: 1, holders: [holder], waiters: [] };
  live._begin({ at: 1, seen_at: 1, since: 1, lost: [], grants: [], locks: [lock] });
  view.update();
  const rows = document.querySelectorAll('.row').length;
  view.close();
  return rows;
})()"""


def test_the_first_list_does_not_wait_for_its_turn(browser: Browser, api: Api) -> None:
    """A list is arranged once a second, so that rows can be read; an empty one need not be."""
    with opened(browser, at(api)) as page:
        assert page.run(ARRANGED) == 1


def test_the_stream_does_not_wait_for_who_we_are(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "one") as locks:
        lease = locks.lock("x").acquire()
        page = browser.page()
        page.send("Fetch.enable", patterns=[{"urlPattern": "*/v1/me*"}])
        page.open(at(api))
        deadline = time.monotonic() + PATIENCE
        while not any("/v1/events" in one for one in page.requests):
            assert time.monotonic() < deadline
            browser.listen(0.02)
        assert page.run(f"{ROWS}.length") == 0
        page.send("Fetch.disable")
        page.wait(f"{ROWS}.join() === 'x'")
        page.close()
        lease.release()


def test_many_changes_at_once_are_shown(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "many") as locks, opened(browser, at(api)) as page:
        lease = locks.multi([f"lock:{number}" for number in range(120)], ttl=60.0).acquire()
        page.wait("document.querySelector('.shown').textContent === '120 locks'")
        lease.release()
        page.wait("document.querySelector('.shown').textContent === '0 locks'")


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


def test_it_is_small_and_has_no_script_of_its_own_in_the_document() -> None:
    folder = Path(static.__file__).parent / "static"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 150_000
    document = (folder / "index.html").read_text()
    assert document.count("<script") == 1
    assert "style=" not in document
    loaded = set(re.findall(r'modulepreload" href="page/([a-z.]+)"', document))
    assert loaded == {file.name for file in folder.glob("*.js")} - {"main.js"}
