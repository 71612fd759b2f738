"""A picture of a chaos run in a real browser, for the tests: what it shows, and what it tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from browser import Browser
from holdfast.chaos.picture import draw


class Picture:
    """A picture that a browser has opened from a file."""

    def __init__(self, browser: Browser, folder: Path, report: dict[str, Any], **size: Any) -> None:
        file = folder / "picture.html"
        file.write_text(draw(report), "utf-8")
        self.url = file.as_uri()
        self.page = browser.page(**size)
        self.page.prefer(reduced_motion="reduce")
        self.page.open(self.url)
        self.page.frames()

    def dots(self, selector: str = "#stage") -> str:
        """Returns what a canvas shows."""
        self.page.frames()
        return str(self.page.run(f"document.querySelector('{selector}').toDataURL()"))

    def colours(self) -> set[tuple[int, ...]]:
        """Returns the colours that are on the canvas."""
        self.page.frames()
        found = self.page.run(
            "(c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            " const s = new Set(); for (let i = 0; i < d.length; i += 4)"
            " s.add(d[i] * 65536 + d[i + 1] * 256 + d[i + 2]); return [...s] })"
            "(document.getElementById('stage'))"
        )
        return {(dot >> 16, dot >> 8 & 255, dot & 255) for dot in found}

    def has(self, name: str) -> bool:
        """Returns whether the colour of that name is on the canvas."""
        value = self.page.run(
            f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()"
        )
        return tuple(bytes.fromhex(value[1:])) in self.colours()

    def corner(self) -> tuple[float, float]:
        """Returns where the lanes begin in the window, with all of them in view if they fit."""
        x, y = self.page.run(
            "(e => { e.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const r = e.getBoundingClientRect(); return [r.x, r.y] })"
            "(document.getElementById('lanes'))"
        )
        return x, y

    def focus(self) -> None:
        self.page.run("document.getElementById('lanes').focus()")

    def story(self) -> str:
        return self.page.text(".card")

    def times(self) -> str:
        """Returns the moment that the story begins with."""
        return self.page.text("#story .at")

    def close(self) -> None:
        """Closes it; nothing may have gone wrong in it, or been asked for from outside."""
        errors, requests = self.page.errors, self.page.requests
        self.page.close()
        assert errors == []
        assert {url for url in requests if not url.startswith("data:")} <= {self.url}
