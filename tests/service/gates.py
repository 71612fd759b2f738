"""A verb of a service's store that waits at a gate: what happens meanwhile is the test's choice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.service.store import Store
from service.running import LIMIT, NAMESPACES, Api


def store_of(api: Api) -> Store:
    """Returns the first namespace of a service that was used."""
    assert api.app is not None
    return api.app.service.stores[NAMESPACES[0]]


class Gate:
    """A gate that is closed until `open` is called."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def reached(self) -> None:
        """Waits until a call stands before it."""
        assert self._reached.wait(LIMIT), "nobody came to the gate"

    def open(self) -> None:
        self._opened.set()

    async def pass_through(self) -> None:
        """Waits until it is open, without holding up the service."""
        self._reached.set()
        assert await asyncio.to_thread(self._opened.wait, LIMIT), "nobody opened the gate"


@contextmanager
def replaced(api: Api, **verbs: Any) -> Iterator[None]:
    """Gives the store's backend other verbs for a while."""
    own = store_of(api).backend.__dict__
    before = {verb: own[verb] for verb in verbs if verb in own}
    own.update(verbs)
    try:
        yield
    finally:
        for verb in verbs:
            del own[verb]
        own.update(before)


@contextmanager
def gated(
    api: Api,
    verb: str,
    *,
    before: Callable[..., bool] = lambda *words: False,
    after: Callable[..., bool] = lambda answer, *words: False,
    **others: Any,
) -> Iterator[Gate]:
    """Has some calls of a verb wait at a gate; `others` are verbs to replace besides.

    `before` picks those that wait before they ask the store, by their arguments; `after` picks those
    that wait with its answer in hand, by that and their arguments.
    """
    gate = Gate()
    ask = getattr(store_of(api).backend, verb)

    async def wait_and_ask(*words: Any, **options: Any) -> Any:
        if before(*words):
            await gate.pass_through()
        answer = await ask(*words, **options)
        if after(answer, *words):
            await gate.pass_through()
        return answer

    with replaced(api, **{verb: wait_and_ask}, **others):
        try:
            yield gate
        finally:
            gate.open()
