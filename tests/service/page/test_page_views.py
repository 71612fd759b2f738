"""The views of the live page: what they say is so, can be read, and stays under one's hands."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

import holdfast
from browser import Browser
from service.page.showing import ROWS, at, connect, opened
from service.running import Api
from service.security.served import make_token, serve
from worlds.threads import Job

FORCE = ".titled .danger"
HELD_BACK = """(() => {
  const ask = window.fetch;
  window.sent = [];
  window.fetch = async (address, options) => {
    if (!String(address).includes('/v1/locks/')) return ask(address, options);
    sent.push(options?.method ?? 'GET');
    await new Promise((done) => { window.go = done; });
    const answer = await ask(address, options);
    window.answered = true;
    return answer;
  };
})()"""


def test_a_cancelled_release_is_not_sent(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "holder") as locks:
        lease = locks.lock("x", ttl=120.0).acquire()
        with opened(browser, at(api, lock="x")) as page:
            page.wait(f"!document.querySelector('{FORCE}').hidden")
            page.wait("document.querySelector('.timeline .hold') !== null")
            page.run(HELD_BACK)
            page.click(FORCE)
            page.click("dialog .danger")
            page.wait("sent.length === 1")
            page.click("dialog .answer button")
            page.wait("!document.querySelector('dialog').open")
            page.run("go()")
            page.wait("window.answered")
            page.frames()
            assert page.run("sent") == ["GET"]
            assert locks.inspect("x").held
        lease.release()


def test_what_is_sent_is_not_said_to_be_cancelled(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "holder") as locks:
        locks.lock("x", ttl=120.0).acquire()
        with opened(browser, at(api, lock="x")) as page:
            page.wait(f"!document.querySelector('{FORCE}').hidden")
            page.wait("document.querySelector('.timeline .hold') !== null")
            page.run(HELD_BACK)
            page.click(FORCE)
            page.click("dialog .danger")
            page.wait("sent.length === 1")
            page.run("go()")
            page.wait("sent.length === 2")
            assert page.text("dialog .answer button") == "Close"
            page.run("go()")
            page.wait("document.querySelector('main').innerText.includes('nobody holds it')")


def test_focus_and_selection_stay_while_things_change(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "the-holder") as locks, connect(url, "the-waiter") as others:
        lease = locks.lock("x", ttl=120.0).acquire()
        with opened(browser, at(api, lock="x")) as page:
            page.wait("document.querySelector('.timeline .hold') !== null")
            page.run("document.querySelector('.timeline .hold').focus()")
            page.run("getSelection().selectAllChildren(document.querySelector('.plain strong'))")
            assert page.run("String(getSelection())") == "the-holder"
            waiter = Job(others.lock("x", ttl=120.0).acquire)
            page.wait("document.querySelectorAll('.plain li').length === 2")
            page.wait("document.querySelectorAll('.graph .party').length === 2")
            assert page.run("String(getSelection())") == "the-holder"
            assert page.run("document.activeElement.matches('.timeline .hold')")
            lease.release()
            waiter.result()
            page.wait("document.querySelectorAll('.timeline .hold').length === 2")
            assert page.run("document.activeElement.getAttribute('aria-label')").endswith(
                ": released"
            )
        waiter.result().release()


def test_the_row_one_came_from_is_found_again(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "many") as locks:
        names = [f"lock:{number:03}" for number in range(200)]
        leases = [locks.multi(some, ttl=60.0).acquire() for some in (names[:100], names[100:])]
        with opened(browser, at(api, sort="name")) as page:
            page.wait(f"{ROWS}.includes('lock:000')")
            page.press("/")
            for key in ("ArrowDown", "End"):
                page.press(key)
            page.wait("document.activeElement.textContent === 'lock:199'")
            page.press("Enter")
            page.wait("document.querySelector('h1').textContent === 'lock:199'")
            ring = "getComputedStyle(document.querySelector('main')).outlineStyle"
            assert page.run(f"document.activeElement.tagName + {ring}") == "MAINnone"
            page.press("Escape")
            page.wait("document.activeElement.textContent === 'lock:199'")
            page.run("document.activeElement.blur()")
            page.run("document.querySelector('.scroller').scrollTop = 2000")
            page.wait(f"{ROWS}.includes('lock:050')")
            page.wait(
                "[...document.querySelectorAll('.row a[tabindex=\"0\"]')].map(a => a.textContent)"
                ".join() === 'lock:046'"  # the first that is in sight as a whole
            )
        for lease in leases:
            lease.release()


CROWDED = """(async () => {
  const { graph } = await import('./page/graph.js');
  const who = (number) => ({ owner: `o${number}`, label: { text: `p${number}`, host: '', pid: 0 } });
  const crowd = Array.from({ length: 20 }, (_, number) => who(number));
  const locks = new Map([
    ['x', { name: 'x', holders: [who('a')], waiters: [...crowd, who('b')] }],
    ['y', { name: 'y', holders: [who('b')], waiters: [who('a')] }],
  ]);
  const cycle = [
    { name: 'x', waiter: who('b'), blocker: who('a') },
    { name: 'y', waiter: who('a'), blocker: who('b') },
  ];
  const drawn = graph(locks, 'x', [{ names: ['x', 'y'], cycle }]);
  return [drawn.querySelectorAll('path.stuck').length, drawn.querySelector('p').textContent];
})()"""


def test_a_circle_is_closed_however_many_wait_beside_it(browser: Browser, api: Api) -> None:
    with opened(browser, at(api)) as page:
        assert page.run(CROWDED) == [4, "and 12 more programs not drawn"]


NESTED = """(async () => {
  const { graph } = await import('./page/graph.js');
  const who = (owner, pid) => ({ owner, label: { host: 'vm', pid, text: '' } });
  const [outer, inner, rest] = ['a'.repeat(10), 'b'.repeat(10), '0'.repeat(14)];
  const lock = (name, holder, waiter) => [name, { name, holders: [holder], waiters: [waiter] }];
  const locks = new Map([
    lock('a', who('c'.repeat(10) + rest, 3), who(inner + outer + rest, 2)),
    lock('b', who(outer + rest, 1), who('d'.repeat(10) + rest, 4)),
  ]);
  const drawn = graph(locks, 'a', []);
  const texts = (one) => [...one.children].map((part) => part.textContent).filter(Boolean);
  const boxes = [...drawn.querySelectorAll('.party')].map(texts);
  return [boxes.sort(), drawn.querySelector('svg').getAttribute('aria-label').split('; ')];
})()"""


def test_who_waits_inside_another_is_named(browser: Browser, api: Api) -> None:
    with opened(browser, at(api)) as page:
        boxes, words = page.run(NESTED)
        assert boxes == [
            ["vm:1, which runs vm:2", "vm:1", "runs vm:2"],
            ["vm:3", "vm:3"],  # and not twice, where there is no label
            ["vm:4", "vm:4"],
        ]
        assert "vm:1, which runs vm:2, waits for a" in words
        assert "b is held by vm:1" in words


LANES = """(async () => {
  const { timeline } = await import('./page/timeline.js');
  const label = (number) => ({ text: `w${number}`, host: 'h', pid: number });
  const who = (number, token) => ({ owner: `o${token}`, label: label(number), token, since: token });
  const history = [];
  for (let token = 1; token <= 14; token += 1) {
    const participant = who(token, token);
    history.push({ kind: 'granted', at: token, participant });
    history.push({ kind: 'released', at: token + 1, participant });
  }
  const drawn = timeline(history, { holders: [who(1, 15)] }, 20, 1000);
  const names = [...drawn.querySelectorAll('svg > text > title')].map((one) => one.textContent);
  const there = names.some((one) => one.startsWith('w1 '));
  const words = ['p.soft', '.legend'].map((one) => drawn.querySelector(one).textContent);
  return [drawn.querySelectorAll('.open.hold').length, names.length, there, ...words];
})()"""


def test_who_holds_it_now_is_in_the_history(browser: Browser, api: Api) -> None:
    with opened(browser, at(api)) as page:
        now, lanes, there, left_out, legend = page.run(LANES)
        assert (now, lanes, there) == (1, 12, True)
        assert left_out.startswith("2 more holds are not drawn")
        assert "forced free" in legend


UNKNOWN = """(async () => {
  const { Live } = await import('./page/live.js');
  const { LockView } = await import('./page/lock.js');
  const live = new Live(() => {});
  const view = new LockView(live, { get: () => 'x', link: () => '?' }, { namespace: 'holdfast' });
  document.querySelector('main').replaceChildren(view.element);
  view.update();
  const text = document.querySelector('main').innerText;
  view.close();
  return text;
})()"""


def test_nothing_is_said_of_a_lock_before_it_is_known(browser: Browser, api: Api) -> None:
    with opened(browser, at(api)) as page:
        said = page.run(UNKNOWN)
        assert "Loading…" in said
        assert "Nobody" not in said


def test_nothing_is_said_of_a_lock_that_is_not_covered(browser: Browser, tmp_path: Path) -> None:
    text = make_token(tmp_path / "tokens.json", "read", "mine:")
    with serve(tmp_path, look_every=0.05) as served:
        page = browser.page()
        page.open(f"{served.url}/?lock=theirs:1")
        page.wait("document.querySelector('#token') !== null")
        page.send("Input.insertText", text=text)
        page.press("Enter")
        page.wait("document.querySelector('main').innerText.includes('does not cover this lock')")
        assert "Nobody" not in page.text("main")
        page.close()


WORDS = """(async () => {
  const { clockTime, sharing } = await import('./page/words.js');
  const pool = { kind: 'semaphore', capacity: 10, holders: [{ weight: 5 }, { weight: 2 }] };
  const today = new Date();
  const lastYear = new Date(today.getFullYear() - 1, 0, 31, 16, 13, 5);
  const times = [clockTime(today / 1000).length, clockTime(lastYear / 1000)];
  return [sharing(pool), ...times, today.getFullYear() - 1];
})()"""


def test_permits_are_counted_by_weight_and_times_have_their_date(
    browser: Browser, api: Api
) -> None:
    with opened(browser, at(api)) as page:
        permits, letters, then, year = page.run(WORDS)
        assert permits == "7 of 10 permits"
        assert letters == len("16:13:05")
        assert then == f"Jan 31 {year}, 16:13:05"


def test_a_history_goes_on_and_follows_the_width(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "one") as locks:
        lease = locks.lock("x", ttl=120.0).acquire()
        with opened(browser, at(api, lock="x")) as page:
            page.wait("document.querySelector('.timeline .hold') !== null")
            last = "[...document.querySelectorAll('.timeline > text')].at(-2).textContent"
            said = page.run(last)
            page.wait(f"{last} !== '{said}'")
            wide = "document.querySelector('.timeline').viewBox.baseVal.width"
            assert page.run(wide) > 800
            page.resize(800, 600)
            page.wait(f"{wide} < 800")
        lease.release()


def test_a_history_that_could_not_be_had_is_asked_for_again(
    browser: Browser, api: Api, url: str
) -> None:
    with connect(url, "one") as locks, opened(browser, at(api)) as page:
        locks.lock("x").acquire().release()
        lease = locks.lock("x", ttl=120.0).acquire()
        page.wait(f"{ROWS}.join() === 'x'")
        page.run(
            "window.ask = window.fetch, window.fetch = (address, options) =>"
            " String(address).includes('/history') ? Promise.reject(new Error('cut'))"
            " : ask(address, options)"
        )
        page.click(".row a")
        page.wait("document.querySelector('main').innerText.includes('could not be asked for')")
        assert "Watched since" not in page.text("main")
        page.run("window.fetch = window.ask")
        page.wait("document.querySelector('main').innerText.includes('Watched since')")
        lease.release()


LONG = ["W" * 60, "鎖" * 60, "🔒" * 60, "a" * 24 + "🔒🔒🔒🔒"]
DRAWN = """(async () => {
  const { graph } = await import('./page/graph.js');
  const { timeline } = await import('./page/timeline.js');
  const who = (text) => ({ owner: text, label: { text, host: text, pid: 1 }, token: 1, since: 1 });
  const bad = [];
  for (const text of %s) {
    const locks = new Map([[text, { name: text, holders: [who(text)], waiters: [who(`${text}2`)] }]]);
    const drawn = graph(locks, text, []);
    const lanes = timeline([], locks.get(text), 9, 1000);
    document.querySelector('main').replaceChildren(drawn, lanes);
    for (const box of drawn.querySelectorAll('g')) {
      const right = box.querySelector('rect').getBBox();
      for (const words of box.querySelectorAll('text')) {
        const { x, width } = words.getBBox();
        const over = x + width > right.x + right.width;
        if (over || !words.textContent.isWellFormed()) bad.push(words.textContent);
      }
    }
    const name = lanes.querySelector('svg > text:has(title)');
    if (name.getBBox().width > 220 || !name.textContent.isWellFormed()) bad.push(name.textContent);
  }
  return bad;
})()"""


def test_long_names_stay_in_their_boxes(browser: Browser, api: Api) -> None:
    with opened(browser, at(api)) as page:
        assert page.run(DRAWN % json.dumps(LONG)) == []


def test_no_name_looks_like_another(browser: Browser, api: Api, url: str) -> None:
    names = ["pay ments", "pay  ments", "pay\u200bments", "pay\xa0ments", "pay\u202ement", "❤️ 👩‍🔧"]
    with connect(url, "one") as locks:
        leases = [locks.lock(name, ttl=120.0).acquire() for name in names]
        with opened(browser, at(api)) as page:
            page.wait(f"{ROWS}.length === {len(names)}")
            shown = page.run(ROWS)
            coded = {"pay\\u200bments", "pay\\u00a0ments", "pay\\u202ement"}
            assert set(shown) == {*names[:2], *coded, names[-1]}
            width = (
                "(text => { const range = document.createRange(); range.selectNodeContents("
                "[...document.querySelectorAll('.row a')].find(a => a.textContent === text));"
                " return range.getBoundingClientRect().width; })"
            )
            assert page.run(f"{width}('pay  ments') > {width}('pay ments')")
            titles = page.run("[...document.querySelectorAll('.row .name')].map(one => one.title)")
            assert titles == shown
            page.open(at(api, lock="pay\u202ement"))
            page.wait("document.querySelector('.timeline .hold') !== null")
            assert page.run("document.title") == "pay\\u202ement · Holdfast"
            said = page.run(
                "document.body.textContent + [...document.querySelectorAll('[aria-label], [title]')]"
                ".map(one => one.getAttribute('aria-label') + one.getAttribute('title')).join()"
            )
            assert "\u202e" not in said
        for lease in leases:
            lease.release()


@pytest.mark.parametrize("width", [768, 390])
def test_a_narrow_page_has_since_when_and_a_drawing_that_can_be_read(
    browser: Browser, api: Api, url: str, width: int
) -> None:
    with connect(url, "one") as locks, connect(url, "two") as others:
        lease = locks.lock("x", ttl=120.0).acquire()
        waiter = Job(others.lock("x", ttl=120.0).acquire)
        with opened(browser, at(api), width=width) as page:
            page.wait("document.querySelector('.row .waiting')?.textContent === '1'")
            assert page.run("document.querySelector('.row .since').clientWidth") > 20
            page.open(at(api, lock="x"))
            page.wait("document.querySelectorAll('.graph .party').length === 2")
            scale = (
                "(one => one.clientWidth / one.viewBox.baseVal.width)"
                "(document.querySelector('.graph'))"
            )
            assert page.run(scale) > 0.95
            assert page.run("document.documentElement.scrollWidth") <= width
            page.click(FORCE)
            page.wait("document.querySelector('dialog').open")
            edges = (
                "(({left, right}) => [left, innerWidth - right])"
                "(document.querySelector('dialog').getBoundingClientRect())"
            )
            assert min(page.run(edges)) >= 16
        lease.release()
        waiter.result().release()


def test_a_narrow_page_has_elections_and_waiters_on_lines_of_their_own(
    browser: Browser, api: Api, url: str
) -> None:
    lines = (
        "(one => (range => [...new Set([...range.getClientRects()].map(box => box.top))].length)"
        "((range => (range.selectNodeContents(one), range))(document.createRange())))"
        "(document.querySelector('.plain a'))"
    )
    lefts = (
        "[...document.querySelectorAll('.queued')].flatMap(one => {"
        " const range = document.createRange(); range.selectNode(one.childNodes[1]);"
        " return [range, one.querySelector('.small')].map(part => part.getBoundingClientRect().x) })"
    )
    beside = (
        "(([name, since]) => since.getBoundingClientRect().top < name.getBoundingClientRect().bottom)"
        "(document.querySelector('li:has(> .queued)').children)"
    )
    with connect(url, "one") as locks, connect(url, "two") as others:
        term = locks.election("scheduler-of-the-night", value="10.0.0.7:8080").campaign()
        lease = locks.lock("x", ttl=120.0).acquire()
        waiters = [Job(lambda: others.lock("x").acquire().release()) for _ in range(10)]
        with opened(browser, at(api, view="store"), width=390) as page:
            page.wait("document.querySelector('.term')?.textContent.startsWith('term')")
            assert page.run(lines) == 1
            page.open(at(api, lock="x"))
            page.wait("document.querySelectorAll('.queued').length === 10")
            assert len(set(page.run(lefts))) == 1
            assert page.run(beside)
        term.resign()
        lease.release()
        assert all(waiter.result() for waiter in waiters)


def test_who_has_no_label_is_named_once(browser: Browser, api: Api, url: str) -> None:
    with holdfast.connect(url, namespace="second") as locks:
        lease = locks.lock("x", ttl=120.0).acquire()
        with opened(browser, at(api, lock="x")) as page:
            page.wait("document.querySelectorAll('.plain li').length === 1")
            assert page.text(".plain li").count(f"{socket.gethostname()}:{os.getpid()}") == 1
        lease.release()
