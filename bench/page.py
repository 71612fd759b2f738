"""The live page in Chromium: ten thousand locks on its first screen, and a thousand changes a second.

The document is the floor of the first figure: what is measured is from its last byte to the list as it
is shown. The others are the browser's own count of what its main thread did, and of its memory.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from .measure import ROOT, Child, Row, Setting, say
from .redis_server import server

if TYPE_CHECKING:
    from browser import Browser, Page

LOCKS, CHANGES = 10_000, 1_000
FILLED, EVERY = 30, 60
"""Seconds until the page keeps as many events as it ever does, and between two looks at its memory."""
FIRST, BUSY = 500.0, 50.0
ALL = """new Promise(done => { const look = () => {
  const rows = document.querySelector('.grid')?.getAttribute('aria-rowcount');
  if (rows === '%s') {
    done(performance.now() - performance.getEntriesByType('navigation')[0].responseEnd);
  } else requestAnimationFrame(look);
}; look(); })"""
"""Until all locks can be scrolled to."""
SHOWN = """new Promise(done => { const look = () => {
  const text = document.querySelector('.shown')?.textContent;
  const row = document.querySelector('.row');
  if (text === '%s locks' && row) {
    done(performance.now() - performance.getEntriesByType('navigation')[0].responseEnd);
  } else requestAnimationFrame(look);
}; look(); })"""


def figure(setting: Setting) -> list[Row]:
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import Browser

    number = 2_000 if setting.quick else LOCKS
    seconds = 10 if setting.quick else 600
    with server(setting.folder) as port, Child("bench.service", "serve", port) as service:
        address = f"http://127.0.0.1:{service.receive()['port']}/"
        with Child("bench.page", "hold", port, number) as holder, Browser() as browser:
            holder.receive()
            first = _first_screen(browser, address, number, 3 if setting.quick else 9)
            with Child("bench.page", "change", port) as changes:
                changes.receive()
                return [first, *_under_change(browser, address, changes, seconds)]


def _first_screen(browser: Browser, address: str, number: int, rounds: int) -> Row:
    samples, whole = [], []
    for _ in range(rounds):
        page = _page(browser, address)
        samples.append(page.run(SHOWN % f"{number:,}"))
        whole.append(page.run(ALL % (number + 1)))
        page.close()
    found = median(samples)
    text = f"from the document's end to the first screen of {number:,} locks"
    beside = f"to all of them {median(whole):.0f} ms"
    return Row(
        text,
        f"{found:.0f} ms",
        beside,
        None,
        f"≤ {FIRST:.0f} ms",
        found <= FIRST,
        {"ms": samples, "all": whole},
    )


def _under_change(browser: Browser, address: str, changes: Child, seconds: int) -> list[Row]:
    page = _page(browser, address)
    page.send("Performance.enable")
    page.wait("document.querySelectorAll('.row').length > 0")
    time.sleep(min(FILLED, seconds))
    before, heap = after, heap_after = _metrics(page)
    heaps = [heap]
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        time.sleep(min(EVERY, seconds - passed))
        after, heap_after = _metrics(page)
        heaps.append(heap_after)
    busy = (after - before) * 1000 / (time.monotonic() - began)
    changes.send("stop")
    rate = changes.receive()
    page.close()
    grown = heap_after / heap
    return [
        Row(
            f"main thread at {CHANGES:,} changes a second",
            f"{busy:.0f} ms a second",
            f"{rate:,.0f} changes were made a second",
            None,
            f"≤ {BUSY:.0f} ms",
            busy <= BUSY,
            {"ms": busy, "changes": rate},
        ),
        Row(
            f"its memory after {seconds} s of that",
            f"{heap_after / 1e6:.1f} MB",
            f"after {min(FILLED, seconds)} s {heap / 1e6:.1f} MB",
            grown,
            "≤ 1.1",
            grown <= 1.1,
            {"heaps": heaps},
        ),
    ]


def _page(browser: Browser, address: str) -> Page:
    """Returns the page, opened, in a browser that does not tell us what it receives.

    Telling it was seen to make the first screen a third slower.
    """
    page = browser.page()
    page.send("Network.disable")
    page.open(address)
    return page


def _metrics(page: Page) -> tuple[float, float]:
    """Returns the seconds that the main thread has worked, and the bytes that scripts use."""
    page.send("HeapProfiler.collectGarbage")
    found = {one["name"]: one["value"] for one in page.send("Performance.getMetrics")["metrics"]}
    return found["TaskDuration"], found["JSHeapUsedSize"]


# The processes beside.


async def _hold(port: int, number: int) -> None:
    import holdfast.aio

    async with holdfast.aio.connect(f"redis://127.0.0.1:{port}/0", label="bench") as locks:
        for first in range(0, number, 500):
            some = range(first, min(first + 500, number))
            await asyncio.gather(
                *[locks.lock(f"lock:{one:05}", ttl=60.0).acquire() for one in some]
            )
        say(True)
        await asyncio.to_thread(sys.stdin.read)


async def _change(port: int) -> None:
    import holdfast.aio

    async with holdfast.aio.connect(f"redis://127.0.0.1:{port}/0", label="busy") as locks:
        say(True)
        turn = 0
        held: list[Any] = []
        ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
        start = time.monotonic()
        while not ended.done():
            began = time.monotonic()
            turn += 1
            await asyncio.gather(*[lease.release() for lease in held])
            names = [f"change:{turn % 2}:{one}" for one in range(CHANGES // 2)]
            held = await asyncio.gather(*[locks.lock(name).acquire() for name in names])
            await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
        say(turn * CHANGES / (time.monotonic() - start))


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    work = {"hold": _hold, "change": _change}[what]
    asyncio.run(work(*map(int, words)))  # type: ignore[operator]
