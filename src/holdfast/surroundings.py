"""Checks of the surroundings: the threads, sockets and event loops on which locks depend.

gevent and eventlet replace the standard library's blocking calls by their own ("monkey patching").
That is good if all of them are replaced, before we import them. Otherwise one waiter would stop every
greenlet of its process, the holder's too: its lease would lapse.
"""

from __future__ import annotations

import _thread
import sys

from .errors import ConfigError

_allocate_lock = _thread.allocate_lock
"""The maker of locks as it was when Holdfast was imported."""
_PATCHED = ("threading", "socket", "select")


def require_threads() -> None:
    """Raises ConfigError if blocking calls would stop greenlets."""
    library = greenlets()
    if library == "eventlet":
        raise ConfigError(
            "eventlet has patched this process, and Holdfast does not work under it; use gevent, "
            "threads, or holdfast.aio"
        )
    if library == "gevent":
        monkey = sys.modules["gevent.monkey"]
        missing = [name for name in _PATCHED if not monkey.is_module_patched(name)]
        if missing:
            raise ConfigError(
                f"gevent has patched this process in part, without {' and '.join(missing)}: a waiter "
                "would stop every greenlet; call gevent.monkey.patch_all() without exceptions"
            )
    if _thread.allocate_lock is not _allocate_lock:
        raise ConfigError(
            f"{library or 'something'} has patched this process after Holdfast was imported, so a "
            "waiter would stop every greenlet; call gevent.monkey.patch_all() first, at the top of "
            "the main module, before any other import"
        )


def require_loop() -> None:
    """Raises ConfigError if the caller does not run on an event loop of asyncio."""
    from asyncio import get_running_loop

    try:
        get_running_loop()
    except RuntimeError:
        pass
    else:
        return
    trio = sys.modules.get("trio.lowlevel")
    if trio is not None and trio.in_trio_run():
        raise ConfigError(
            "holdfast.aio needs asyncio, and this is trio; run it in trio_asyncio.open_loop(), or use "
            "the blocking holdfast by trio.to_thread.run_sync()"
        )
    raise ConfigError("holdfast.aio needs a running event loop of asyncio; see asyncio.run()")


def greenlets() -> str:
    """Returns the library that has patched this process, "gevent" or "eventlet", or "" if none has."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and any(monkey.is_module_patched(name) for name in _PATCHED):
        return "gevent"
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and any(map(patcher.is_monkey_patched, ("thread", "socket", "select"))):
        return "eventlet"
    return ""
