"""Five throw-away nodes for redlock://."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .redis import RedisServer


class RedlockNodes:
    """Independent servers, and the URL that names them all."""

    def __init__(self, count: int = 5, *options: str) -> None:
        self.nodes: list[RedisServer] = []
        try:
            for _ in range(count):
                self.nodes.append(RedisServer(*options))
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return url_of([node.port for node in self.nodes])

    def flush(self) -> None:
        """As if they had never been used."""
        for node in self.nodes:
            node("FLUSHALL")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


def url_of(ports: list[int]) -> str:
    return "redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports)


@contextmanager
def redlock_nodes(count: int = 5, *options: str) -> Iterator[RedlockNodes]:
    nodes = RedlockNodes(count, *options)
    try:
        yield nodes
    finally:
        nodes.stop()
