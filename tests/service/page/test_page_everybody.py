"""The live page for everybody: phones, screen readers, few rights, and names that would be markup."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import holdfast
from browser import Browser
from service.page.showing import LIVE, ROWS, at, connect, opened
from service.running import Api
from service.security.served import make_token, serve
from worlds.threads import Job

AXE = Path(sys.prefix) / "axe/node_modules/axe-core/axe.min.js"
HOSTILE = '<img src=x onerror="window.hurt = 1">'


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
                page.wait(LIVE)
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
        page.open(f"{served.url}/?lock=theirs:1")
        page.wait("document.querySelector('main').innerText.includes('does not cover this lock')")
        assert "Free" not in page.text("main")
        page.run("window.fetch = () => Promise.reject(new Error('cut'))")
        page.click("[data-logout]")
        page.wait(
            "document.querySelector('[data-logout]').textContent.startsWith('Not logged out')"
        )
        page.open(f"{served.url}/?lock=mine:1")
        page.wait("document.querySelectorAll('.plain li').length === 1")
        page.click("[data-logout]")
        page.wait("document.querySelector('#token') !== null")
        assert page.text("header").strip() == "Holdfast"
        assert page.run("document.title") == "Holdfast"
        page.close()
        for lease in leases:
            lease.release()
