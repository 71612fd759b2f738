"""The live page when there is much: ten thousand locks, many changes, and little that is loaded."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

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
            page.wait("document.querySelector('.grid').getAttribute('aria-rowcount') === '10001'")
            assert page.run("document.querySelectorAll('.row').length") < 60
            page.run("document.querySelector('.scroller').scrollTop = 1e9")
            page.wait(f"{ROWS}.includes('lock:09999')")
            assert page.run("document.querySelectorAll('.row').length") < 60


LISTED = """(async () => {
  const { Live } = await import('./page/live.js');
  const { ListView } = await import('./page/list.js');
  const live = new Live(() => {});
  const state = { sort: '', prefix: '', ...%s };
  const view = new ListView(live, { get: (key) => state[key], link: () => '?', set() {} });
  document.querySelector('main').replaceChildren(view.element);
  view.update();
  const label = { host: 'h', pid: 1, text: 't' };
  const holder = { owner: 'o', label, token: 1, since: 1, remaining: 30, weight: 1 };
  const rest = { kind: 'lock', capacity: 1, token: 1, holders: [holder], waiters: [] };
  const lock = (name) => ({ name, ...rest });
  const told = { at: 1, seen_at: 1, since: 1, lost: [], grants: [], held: 3, waiting: 5, number: 3 };
  const seen = [];
  const text = (words) => document.querySelector(words)?.textContent ?? '';
  const see = () => {
    view.update();
    const empty = text('.empty:not([hidden])');
    seen.push([%s.join(''), text('.shown'), text('.counts dd'), empty, live.loaded]);
  };
  live._begin({ ...told, locks: [lock('a1')] });
  see();
  live._add([lock('b')]);
  see();
  live._add([lock('a2')]);
  see();
  live._begin({ ...told, held: 2, number: 2, locks: [lock('c')] });
  see();
  live._add([lock('d')]);
  view._arrange();
  see();
  view.close();
  return seen;
})()"""


def listed(browser: Browser, api: Api, state: str) -> Any:
    with opened(browser, at(api)) as page:
        return page.run(LISTED % (state, ROWS))


def test_the_first_locks_are_shown_before_all_are_there(browser: Browser, api: Api) -> None:
    """A list is arranged once a second, so that rows can be read; a first one need not be."""
    assert listed(browser, api, "{}") == [
        ["a1", "3 locks", "3", "", False],
        ["a1", "3 locks", "3", "", False],
        ["a1a2b", "3 locks", "3", "", True],
        ["a1a2b", "3 locks", "3", "", True],  # until all that are listed anew are there
        ["cd", "2 locks", "2", "", True],
    ]


@pytest.mark.parametrize("state", ["{ prefix: 'a' }", "{ sort: 'name' }"])
def test_what_does_not_come_first_waits_for_all(browser: Browser, api: Api, state: str) -> None:
    seen = listed(browser, api, state)
    assert seen[0][0] == seen[1][0] == ""
    assert seen[0][3] == seen[1][3] == "Loading…"
    assert seen[2][0] in ("a1a2", "a1a2b")


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


AROUND = """(async () => {
  const { surroundings } = await import('./page/graph.js');
  const who = (owner) => ({ owner: owner.repeat(10), label: { text: '' } });
  const lock = (name, holder, ...waiters) =>
    [name, { name, holders: [who(holder)], waiters: waiters.map(who) }];
  const many = Array.from({ length: 20 }, (_, number) => lock(`held:${number}`, 'b'));
  const locks = new Map([...many, lock('x', 'a', 'b'), lock('y', 'b', 'c')]);
  return [...surroundings(locks, 'x').column.keys()].filter((key) => key.startsWith('lock '));
})()"""


def test_locks_that_nobody_waits_for_are_not_drawn(browser: Browser, api: Api) -> None:
    """Only so many are, and those of a deadlock would be pushed out."""
    with opened(browser, at(api)) as page:
        assert page.run(AROUND) == ["lock x", "lock y"]


CROWD = """(async () => {
  const { Live } = await import('./page/live.js');
  const live = new Live(() => {});
  const who = (number) => ({ owner: `o${number}`, label: {}, token: 0, since: 1, remaining: 30 });
  const waiters = Array.from({ length: 4 }, (_, number) => who(number));
  const lock = { name: 'hot', kind: 'lock', capacity: 1, token: 1, holders: [who('h')], waiters };
  const told = { at: 1, seen_at: 1, since: 1, lost: [], grants: [], held: 1, waiting: 4, number: 1 };
  live._begin({ ...told, locks: [lock] });
  const take = (kind, one) => live._take(kind, { name: 'hot', at: 2, ...one }, null);
  const seen = () => live.locks.get('hot').waiters.map((one) => one.owner).join();
  const order = [seen()];
  take('left', who(1));
  take('queued', who(9));
  take('queued', who(9));
  order.push(seen());
  take('queued', who(1));
  take('granted', who(0));
  order.push(seen());
  for (const number of [1, 2, 3, 9]) take('left', who(number));
  order.push(seen(), live.locks.get('hot').holders.map((one) => one.owner).join());
  return order;
})()"""


def test_waiters_stay_in_their_order_as_they_come_and_go(browser: Browser, api: Api) -> None:
    with opened(browser, at(api)) as page:
        expected = ["o0,o1,o2,o3", "o0,o2,o3,o9", "o2,o3,o9,o1", "", "oh,o0"]
        assert page.run(CROWD) == expected


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
