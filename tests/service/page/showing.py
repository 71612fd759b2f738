"""The live page, opened, and what stands on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import holdfast
from browser import Browser, Page
from service.running import Api

ROWS = "[...document.querySelectorAll('.row a')].map(a => a.textContent)"
LIVE = "document.querySelector('[data-live]').textContent === 'live'"


@contextmanager
def opened(browser: Browser, address: str, **size: Any) -> Iterator[Page]:
    """Opens the page, waits until it is live, and sees that it complained of nothing."""
    page = browser.page(**size)
    try:
        page.open(address)
        page.wait(LIVE)
        yield page
        assert page.errors == []
        outside = [one for one in page.requests if not one.startswith(address.partition("?")[0])]
        assert outside == []
    finally:
        page.close()


def at(api: Api, **query: str) -> str:
    """Returns the address of the page for the locks that `connect` takes."""
    namespaced = {"namespace": "second", **query}
    return f"{api.url}/?{urlencode(namespaced)}"


def connect(url: str, label: str) -> holdfast.Locks:
    return holdfast.connect(url, namespace="second", label=label)
