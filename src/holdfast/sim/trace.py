"""What happened in a run, to be printed if it fails: kept as it is, and put into words only then."""

from __future__ import annotations

from .loop import VirtualLoop


class Story:
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._lines: list[tuple[float, str, str, tuple[object, ...]]] = []

    def tell(self, who: str, what: str, *args: object) -> None:
        self._lines.append((self._loop.now, who, what, args))

    def lines(self) -> list[str]:
        return [f"{at:10.6f}  {who:<8} {what % args}" for at, who, what, args in self._lines]
