"""The site that `make docs` builds: whole, without requests to anybody outside, and usable."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from browser import Browser, Page

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "docs"
AXE = Path(sys.prefix) / "axe/node_modules/axe-core/axe.min.js"
LOADED = re.compile(
    r"""<(?:script|img|source|iframe|video|audio|embed|object)\b[^>]*?\b(?:src|srcset|data)=["']?(?:https?:)?//"""
    r"""|<link\b(?![^>]*rel=["']?(?:canonical|author|license))[^>]*href=["']?(?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//|@import\s+["'](?:https?:)?//"""
    r"""|\b(?:fetch|importScripts|import|open)\(\s*["'`](?:https?:)?//""",
    re.IGNORECASE,
)
"""What makes a browser ask for something from outside when it shows a page."""


@cache
def built() -> Path:
    """Builds the site, as far as it is not built yet, and returns its folder."""
    done = subprocess.run(
        [sys.executable, "-m", "docs_site"],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return SITE


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


def open_page(browser: Browser, name: str, *, width: int = 1440) -> Page:
    page = browser.page(width=width, height=900)
    page.open((built() / f"{name}.html").as_uri())
    return page


def test_every_page_of_the_docs_is_in_the_site() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (built() / name.replace("README", "index")).exists(), page


def test_no_page_asks_anybody_outside() -> None:
    checked = [path for path in built().rglob("*") if path.suffix in {".html", ".css", ".js"}]
    assert len(checked) > 50
    for path in checked:
        found = LOADED.search(path.read_text())
        assert not found, f"{path} loads {found.group()}"


@pytest.mark.parametrize(
    "loading",
    [
        '<script async src="https://example.com/x.js">',
        "<img alt='' src=//example.com/x.png>",
        '<link rel="stylesheet" href="http://example.com/x.css">',
        "body { background: url(https://example.com/x.png) }",
        '@import "https://example.com/x.css"',
        'fetch("https://example.com/")',
    ],
)
def test_a_request_to_somebody_outside_would_be_noticed(loading: str) -> None:
    assert LOADED.search(loading)


@pytest.mark.parametrize("name", ["index", "start", "chaos", "api/holdfast", "decisions/index"])
def test_a_page_loads_by_itself(browser: Browser, name: str) -> None:
    page = open_page(browser, name, width=390)
    assert not page.errors
    assert all(request.startswith(("file:", "data:")) for request in page.requests)
    assert page.run("document.documentElement.scrollWidth") <= 390
    page.close()


def test_the_search_finds_a_page(browser: Browser) -> None:
    page = open_page(browser, "index")
    page.click("input[name=q]")
    page.run("document.querySelector('input[name=q]').value = 'fencing'")
    page.press("Enter")
    page.wait("document.querySelectorAll('#search-results li').length > 3")
    assert all(request.startswith(("file:", "data:")) for request in page.requests)
    page.close()


def test_the_button_changes_the_colours_and_the_pictures(browser: Browser) -> None:
    page = open_page(browser, "index")
    page.prefer(color_scheme="light")
    shown = (
        "[...document.querySelectorAll('article img')].filter(e => e.offsetWidth).map(e => e.src)"
    )
    ground = "getComputedStyle(document.body).backgroundColor"
    (light,), white = page.run(shown), page.run(ground)
    assert light.endswith("chaos-pause.png")
    page.prefer(color_scheme="dark")
    page.wait(f"{ground} != {white!r}")
    (dark,) = page.run(shown)
    assert dark.endswith("chaos-pause-dark.png")
    page.click(".content-icon-container .theme-toggle")
    page.wait(f"{ground} == {white!r}")
    page.close()


@pytest.mark.parametrize(
    "name", ["index", "search", "fences/sql", "stores", "api/holdfast.tracing"]
)
def test_axe_core_finds_nothing(browser: Browser, name: str) -> None:
    page = open_page(browser, name)
    for scheme in ("light", "dark"):
        page.prefer(color_scheme=scheme)
        page.frames()
        assert page.violations(AXE.read_text("utf-8")) == [], scheme
    page.close()


def test_a_page_is_mended_once() -> None:
    from docs_site.access import mend

    head = '<p class="caption" role="heading">Start</p><th class="head"><p></p></th>'
    once = mend(head)
    assert once == '<p class="caption" role="heading" aria-level="2">Start</p><td></td>'
    assert mend(once) == once


def test_links_lead_to_pages_and_headings_that_are_there() -> None:
    ids: dict[Path, set[str]] = {}
    for path in built().rglob("*.html"):
        ids[path] = set(re.findall(r'\bid="([^"]+)"', path.read_text()))
    for path in ids:
        for link in re.findall(r'<a\b[^>]*href="([^":]+)"', path.read_text()):
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.exists(), f"{path} links to {link}"
            if anchor and target in ids:
                assert anchor in ids[target], f"{path} links to {link}"


def test_the_readme_on_pypi_leads_to_pages_and_pictures_of_the_site() -> None:
    from pypi_readme import rewritten

    shown = rewritten((ROOT / "README.md").read_text(), "https://docs.example/")
    assert "](docs/" not in shown
    assert "<source" not in shown
    places = re.findall(r"""https://docs\.example/([^)"#]+)""", shown)
    assert len(places) > 30
    for place in places:
        assert (built() / place).exists(), place


def test_the_reference_has_every_public_name() -> None:
    import holdfast
    import holdfast.fences

    for module in (holdfast, holdfast.fences):
        text = (built() / "api" / f"{module.__name__}.html").read_text()
        for name in module.__all__:
            if name != "__version__":
                assert f'id="{module.__name__}.{name}"' in text, name


def test_the_picture_of_a_lease_is_that_of_the_table() -> None:
    from docs_site.lifecycle import SCHEMES, TARGET, draw

    for scheme in SCHEMES:
        text = (TARGET / f"lifecycle{scheme}.svg").read_text()
        assert text == draw(scheme), "run: PYTHONPATH=tools .venv/bin/python -m docs_site.lifecycle"
