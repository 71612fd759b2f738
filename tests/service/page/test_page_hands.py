"""The live page while things change under one's hands, and when its way to the service is bad."""

from __future__ import annotations

from browser import Browser
from holdfast.chaos.servers.redis import RedisServer
from service.page.showing import ROWS, at, connect, opened
from service.running import Api, Process
from worlds.threads import Job

FORCE = ".titled .danger"


def test_a_lock_that_has_changed_hands_is_not_forced(browser: Browser, api: Api, url: str) -> None:
    """The question was about somebody else."""
    with connect(url, "alice") as alice, connect(url, "bob") as bob:
        lease = alice.lock("x", ttl=120.0).acquire()
        waiter = Job(bob.lock("x", ttl=120.0).acquire)
        with opened(browser, at(api, lock="x")) as page:
            page.wait(f"!document.querySelector('{FORCE}').hidden")
            page.click(FORCE)
            page.wait("document.querySelector('dialog').open")
            lease.release()
            second = waiter.result()
            page.click("dialog .danger")
            page.wait("document.querySelector('dialog').innerText.includes('has changed hands')")
            assert bob.inspect("x").holders[0].owner == second.owner
            page.press("Escape")
            page.click(FORCE)
            page.wait("document.querySelector('dialog[open]').innerText.startsWith('Force')")
            second.release()
            page.wait("document.querySelector('main').innerText.includes('nobody holds it')")
            page.click("dialog .danger")
            page.wait("document.querySelector('dialog').innerText.includes('released meanwhile')")
            page.press("Escape")
            page.wait("document.activeElement === document.querySelector('main')")


def test_the_chosen_lock_stays_chosen_when_it_moves(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "one") as locks, connect(url, "two") as others:
        leases = [locks.lock(name).acquire() for name in ("a", "b", "c")]
        with opened(browser, at(api)) as page:
            page.wait(f"{ROWS}.join() === 'a,b,c'")
            page.run("document.querySelector('.row a').focus()")
            waiters = [Job(others.lock(name).acquire) for name in ("b", "c")]
            page.wait(
                "(() => { const place = (name) => [...document.querySelectorAll('.row')].find("
                "row => row.querySelector('a').textContent === name).getAttribute('aria-rowindex');"
                "return place('a') === '4'; })()"
            )
            assert page.run("document.activeElement.textContent") == "a"
        for lease in leases:
            lease.release()
        for waiter in waiters:
            waiter.result().release()


def test_whoever_comes_back_to_the_list_is_where_it_was_left(
    browser: Browser, api: Api, url: str
) -> None:
    with connect(url, "many") as locks:
        names = [f"lock:{number:03}" for number in range(200)]
        leases = [locks.multi(some, ttl=60.0).acquire() for some in (names[:100], names[100:])]
        with opened(browser, at(api, sort="name")) as page:
            page.wait(f"{ROWS}.includes('lock:000')")
            page.run("document.querySelector('.scroller').scrollTop = 4400")
            page.wait(f"{ROWS}.includes('lock:105')")
            links = "[...document.querySelectorAll('.row a')]"
            page.run(f"{links}.find(a => a.textContent === 'lock:105').click()")
            page.wait("document.querySelectorAll('.plain li').length === 1")
            page.run("history.back()")
            page.wait(f"{ROWS}.includes('lock:105')")
            assert page.run("document.querySelector('.scroller').scrollTop") == 4400
        for lease in leases:
            lease.release()


def test_the_time_of_a_leader_goes_on(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "one") as locks:
        term = locks.election("chief").campaign()
        with opened(browser, at(api, view="store")) as page:
            page.wait(f"document.querySelector('.term')?.textContent.includes('term {term.token}')")
            said = page.text(".term")
            page.wait(f"document.querySelector('.term').textContent !== '{said}'")
        term.resign()


def test_a_long_label_stays_on_the_page(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "l" * 200) as locks:
        lease = locks.lock("n" * 200).acquire()
        for width in (1440, 390):
            with opened(browser, at(api, lock="n" * 200), width=width) as page:
                page.wait("document.querySelectorAll('.plain li').length === 1")
                page.click(FORCE)
                wide = (
                    "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
                )
                assert page.run(wide)
                inside = (
                    "(one => one.scrollWidth <= one.clientWidth)(document.querySelector('dialog'))"
                )
                assert page.run(inside)
        lease.release()


def test_names_are_not_written_backwards(browser: Browser, api: Api, url: str) -> None:
    with connect(url, "one") as locks:
        lease = locks.lock("pay\u202etxt.exe").acquire()
        with opened(browser, at(api)) as page:
            page.wait(f"{ROWS}.join() === 'pay\\\\u202etxt.exe'")
            page.click(".row a")  # the address has the name as it is
            page.wait("document.querySelectorAll('.plain li').length === 1")
            assert page.text("h1") == "pay\\u202etxt.exe"
        lease.release()


def test_a_store_that_is_away_is_not_called_healthy(browser: Browser) -> None:
    server = RedisServer()
    service = Process("--port", "0", "--url", server.url)
    page = browser.page()
    health = "document.querySelector('[data-health]').textContent"
    try:
        page.open(f"{service.api().url}/")
        page.wait(f"{health}.includes('warning') || {health} === 'healthy'")
        server.kill()
        page.wait(f"{health} === 'unreachable'")
        assert "is as it was before" in page.text("[data-notice]")
        assert ".. What" not in page.text("[data-notice]")
        server.start()
        page.wait("document.querySelector('[data-notice]').hidden")
        page.wait(f"{health} !== 'unreachable'")
    finally:
        page.close()
        service.close()
        server.stop()


def test_who_is_told_of_a_forced_release_and_how_many_wait(
    browser: Browser, api: Api, url: str
) -> None:
    with connect(url, "one") as locks, connect(url, "two") as others:
        pool = locks.semaphore("pool", permits=60, ttl=120.0)
        permits = [pool.acquire() for _ in range(60)]
        waiters = [Job(others.semaphore("pool", permits=60).acquire) for _ in range(60)]
        with opened(browser, at(api, lock="pool")) as page:
            page.wait("document.querySelector('main').innerText.includes('Waiting (60)')")
            assert page.run("document.querySelectorAll('.plain li').length") == 2 * 50
            assert page.text("main").count("and 10 more") == 2
            page.click(FORCE)
            told = page.text("dialog")
            assert "and 55 more are told" in told
            assert "count as having lost" in told
        for permit in permits:
            permit.release()
        for waiter in waiters:
            waiter.result().release()


CIRCLES = """(async () => {
  const { Live } = await import('./page/live.js');
  const { ListView } = await import('./page/list.js');
  const live = new Live(() => {});
  const view = new ListView(live, { get: () => '', link: () => '?', set() {} });
  document.querySelector('main').replaceChildren(view.element);
  const label = { host: 'h', pid: 1, text: 't' };
  const who = { owner: 'o', label, token: 1, since: 1, remaining: 30, weight: 1 };
  const lock = { name: 'x', kind: 'lock', capacity: 1, token: 1, holders: [who], waiters: [who] };
  const told = { at: 100, seen_at: 100, since: 1, lost: [], grants: [] };
  const texts = (words) => [...document.querySelectorAll(words)].map((one) => one.textContent);
  const asked = window.fetch;
  const seen = [];
  const step = (name) => ({ name, waiter: who, blocker: who });
  const steps = (number) => Array.from({ length: 8 }, (_, at) => step(`${number}:${at}`));
  const circle = (number) => {
    const cycle = steps(number);
    return { since: 90 - number, cycle, locks: cycle.map((one) => one.name) };
  };
  live.state = 'live';
  try {
    window.fetch = () => Promise.reject(new Error('cut'));
    live._begin({ ...told, held: 1, waiting: 1, number: 1, locks: [lock] });
    await new Promise(requestAnimationFrame);
    seen.push(live.deadlocks.length);
    const answer = { deadlocks: [0, 1, 2, 3, 4].map(circle) };
    window.fetch = async () => new Response(JSON.stringify(answer));
    await live.look();
    seen.push(live.deadlocks.length);
    view.update();
    seen.push(texts('.deadlock li:first-child a').join(), ...new Set(texts('.deadlock p')));
    const title = () => document.querySelector('.deadlock h2').textContent;
    const before = title();
    live.offset += 60;
    view.tick();
    seen.push(before !== title());
  } finally {
    window.fetch = asked;
  }
  view.close();
  return seen;
})()"""


def test_deadlocks_are_asked_for_again_and_the_longest_are_spelled_out(
    browser: Browser, api: Api
) -> None:
    with opened(browser, at(api)) as page:
        assert page.run(CIRCLES) == [
            0,  # nobody answered
            5,
            "4:0,3:0,2:0",
            "and 2 more in this circle",
            "and 2 more deadlocks",
            True,  # time goes on
        ]


SILENT = """(async () => {
  const { Live } = await import('./page/live.js');
  const live = new Live(() => {});
  const asked = window.fetch;
  const seen = [];
  live._source = { readyState: 1, close() { this.readyState = 2; seen.push('closed'); } };
  live.state = 'live';
  try {
    window.fetch = () => Promise.reject(new Error('cut'));
    live._alive = performance.now() - 20000;
    live.check();
    live._alive = performance.now() - 31000;
    live.check();
    live.check();
    await new Promise((done) => setTimeout(done, 50));
    seen.push(live.state);
  } finally {
    window.fetch = asked;
    live.stop();
  }
  return seen;
})()"""


def test_a_stream_that_has_fallen_silent_is_opened_again(browser: Browser, api: Api) -> None:
    """Its other end may be gone without a word, as behind a firewall that forgets connections."""
    with opened(browser, at(api)) as page:
        assert page.run(SILENT)[:2] == ["closed", "cut"]


STRANGERS = """(async () => {
  const { surroundings } = await import('./page/graph.js');
  const who = (owner, text) => ({ owner, label: { host: 'h', pid: 1, text } });
  const lock = (name, holder, waiter) => [name, { name, holders: [holder], waiters: [waiter] }];
  const locks = new Map([
    lock('x', who('a-1', 'alice'), who('b-2', 'bob')),
    lock('y', who('b-1', 'bob'), who('a-2', 'alice')),
  ]);
  return [...surroundings(locks, 'x').column.keys()].sort();
})()"""


def test_owners_that_are_not_of_our_making_are_known_by_their_labels(
    browser: Browser, api: Api
) -> None:
    with opened(browser, at(api)) as page:
        assert page.run(STRANGERS) == [
            "lock x",
            "lock y",
            "stranger alice (h:1)",
            "stranger bob (h:1)",
        ]
