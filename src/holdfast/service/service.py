"""The service: its stores, and all that requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from .._async.connect import named_store
from .._runtime.aio import Worker, call_all
from ..errors import LockError
from .about import Doctors
from .access_log import AccessLog
from .authority import Authority, Everything
from .hooks import Hooks
from .metrics import ServiceMetrics
from .operations import Operation
from .problems import Problem, no_namespace
from .settings import Settings
from .store import Store
from .streams import Stream
from .watcher import Watcher

MOST_TIMINGS = 32
"""Timings of their own that clients of one namespace may have at the same time."""
MOST_TIMINGS_EACH = 8
"""The timings among them that callers with one token may have."""
IDLE_TIMING = 10.0
"""Seconds after which the backend of a timing that nobody uses may make room for another."""
LEAST_CLOSE = 0.5
"""Seconds that the stores have in any case, when the rest of a stop has taken the time there was."""
FENCE_THREADS = 8
"""Checks of fences at the same time."""


class Service:
    """One running service."""

    def __init__(
        self, settings: Settings, authority: Authority | None = None, hooks: Hooks | None = None
    ) -> None:
        self.settings = settings
        self.authority: Authority = authority if authority is not None else Everything()
        self.hooks = hooks if hooks is not None else Hooks()
        self.metrics = ServiceMetrics(self, group=settings.metric_group)
        self.stores = {
            namespace: self._new_store(namespace, settings.options)
            for namespace in settings.namespaces
        }
        self.first_store = self.stores[settings.namespaces[0]]
        self._closing: set[asyncio.Future[Any]] = set()
        self._timed: dict[tuple[object, ...], Store] = {}
        """Stores for clients that want another timing."""
        self.streams: set[Stream] = set()
        """The streams of events and wake-ups that are open."""
        self.doctors = Doctors()
        self.probed: tuple[float, bool] = (-inf, False)
        """When the stores were last asked for `/readyz`, and whether all answered."""
        self.probing = asyncio.Lock()
        self._watchers = {
            namespace: Watcher(store, settings.look_every, settings.events_kept)
            for namespace, store in self.stores.items()
        }
        self.operations: Sequence[Operation] = ()
        """The operations that can be asked for; set by the application."""
        self.described: bytes | None = None
        """`/openapi.json`, once it was asked for."""
        self._fence_worker: Worker | None = None
        path = settings.access_log
        self._access_log = None if path is None else AccessLog(path)
        self.stopping = False
        """Being stopped: waits are ended, and nothing new is begun."""
        self._stop_by = inf
        """When a stop has to be done with everything, once it has begun."""
        self.closed = False
        """Being closed, or closed: the stores are let go of."""

    def store(
        self, namespace: str | None, timing: Mapping[str, float] | None = None, key: str = ""
    ) -> Store:
        """Returns the store of a namespace; raises 404 if the service has none of that name.

        `timing` is what a client wants in place of the store's own: `heartbeat`, `claim_window`; `key`
        is that of the caller.
        """
        if namespace is None:
            store: Store | None = self.first_store
        else:
            store = self.stores.get(namespace)
        if store is None:
            raise no_namespace(str(namespace))
        return self._with_timing(store, timing, key) if timing else store

    def _with_timing(self, plain: Store, timing: Mapping[str, float], taker: str) -> Store:
        """Returns the store of the same namespace for clients with this timing.

        It is part of what the backend asks of the store, so each timing has a backend of its own.
        """
        key = (plain.namespace, *sorted(timing.items()))
        store = self._timed.pop(key, None)
        if store is None:
            self._make_room(plain.namespace, taker)
            store = self._new_store(plain.namespace, {**self.settings.options, **timing})
            store.given_up, store.taker = plain.given_up, taker
        store.used_at = monotonic()
        self._timed[key] = store  # the latest used is the last
        return store

    def _new_store(
        self, namespace: str, options: Mapping[str, Any], beside: Store | None = None
    ) -> Store:
        settings = self.settings
        store = Store(
            settings.url,
            namespace,
            dict(options),
            settings.patience,
            self.hooks,
            lambda: self._new_store(namespace, options, store),
        )
        store.locks.on_call(self.metrics.called)
        if beside is not None:
            store.stand_beside(beside)
        return store

    def _make_room(self, namespace: str, taker: str) -> None:
        """Lets go of the backend of a timing that nobody has used lately, if there are many.

        If the caller itself has many of them, of one of its own: it must not take the place of others.
        """
        present = [key for key in self._timed if key[0] == namespace]
        own = [key for key in present if self._timed[key].taker == taker]
        too_many = bool(taker) and len(own) >= MOST_TIMINGS_EACH
        if len(present) < MOST_TIMINGS and not too_many:
            return
        idle_since = monotonic() - IDLE_TIMING
        for key in own if too_many else present:
            store = self._timed[key]
            lanes = store.lanes.stores
            if store.used_at < idle_since and all(lane.idle for lane in lanes):
                del self._timed[key]
                closing = asyncio.ensure_future(call_all([lane.close for lane in lanes]))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
                return
        whom = "clients with your token" if too_many else "clients"
        raise Problem("bad-input", f"too many {whom} want a heartbeat or claim_window of their own")

    def _all_stores(self) -> list[Store]:
        first = (*self.stores.values(), *self._timed.values())
        return [lane for store in first for lane in store.lanes.stores]

    def watcher(self, store: Store) -> Watcher:
        """Returns the watcher of a namespace."""
        return self._watchers[store.namespace]

    def fence_worker(self) -> Worker:
        """Returns the threads on which fences are asked, since their drivers block."""
        if self._fence_worker is None:
            self._fence_worker = Worker("holdfast-serve-fence", FENCE_THREADS)
        return self._fence_worker

    def fence_url(self) -> str:
        """Returns the URL of the store in which fences are kept."""
        url = self.settings.fence_url or self.settings.url
        if url is None:
            url, _ = named_store(None)
        return str(url)

    async def open(self) -> None:
        """Reaches the stores, if they answer; a request will try again otherwise."""
        if self._access_log is not None and self._access_log not in self.hooks.finished:
            self._access_log.start()
            self.hooks.finished.append(self._access_log)

        async def reach(store: Store) -> None:
            with suppress(LockError):
                await store.session()

        await call_all([partial(reach, store) for store in self.stores.values()])

    @property
    def waiting(self) -> int:
        """The number of held requests that wait for a lock."""
        return sum(len(store.waits) for store in self._all_stores())

    def places(self, key: str) -> int:
        """Returns the number of places in queues that the caller of this key keeps."""
        return sum(store.bells.count(key) for store in self._all_stores())

    def begin_stop(self) -> None:
        """Ends all waits, and refuses whatever is asked from now on."""
        if not self.stopping:
            self.stopping = True
            self._stop_by = monotonic() + self.settings.stop_within
        for store in self._all_stores():
            store.stop()
        for stream in list(self.streams):
            stream.end()

    async def close_in_time(self) -> None:
        """Does as `close`, and waits no longer than a stop may take: a store may not answer."""
        self.begin_stop()
        left = max(self._stop_by - monotonic(), LEAST_CLOSE)
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self.close()

    async def close(self) -> None:
        """Lets go of the stores, after everything was ended. May be repeated."""
        self.begin_stop()
        if not self.closed:
            self.closed = True
            stores: Sequence[Store] = self._all_stores()
            await call_all([store.close for store in stores])
            if self._fence_worker is not None:
                self._fence_worker.close()
            if self._access_log is not None:
                self._access_log.close()
