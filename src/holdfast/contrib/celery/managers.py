"""The manager of locks that belongs to an application of Celery's."""

from __future__ import annotations

import os
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from ... import ConfigError, Locks, connect, forks

_managers: WeakKeyDictionary[Any, Locks] = WeakKeyDictionary()
_mutex = Lock()


def locks_of(app: Any) -> Locks:
    """Returns the application's manager: of the store that its setting `holdfast_url` names.

    Without that it is the one that `$HOLDFAST_URL` names; without either, it raises `ConfigError`,
    since a store of this machine's own would let every other machine do the same at once. The setting
    `holdfast_namespace` is the manager's namespace. Both settings may be in capitals. A worker's child
    processes use the manager as their parent does. If it was closed, the next call returns a new one.
    """
    with _mutex:
        found = _managers.get(app)
        if found is None or found.closed:
            url = _setting(app, "holdfast_url") or os.environ.get("HOLDFAST_URL")
            if not url:
                raise ConfigError(
                    f"the Celery application {app.main!r} names no store for its locks; set "
                    'app.conf.holdfast_url, as in "redis://localhost:6379/0", or $HOLDFAST_URL'
                )
            namespace = _setting(app, "holdfast_namespace") or "holdfast"
            found = _managers[app] = connect(url, namespace=namespace)
        return found


def _setting(app: Any, name: str) -> Any:
    """Returns a setting of the application's, in small letters or in capitals; or None."""
    found = app.conf.get(name)
    return app.conf.get(name.upper()) if found is None else found


def _after_fork_in_child() -> None:
    global _mutex
    _mutex = Lock()  # another thread of the parent may have held it


forks.in_child(_after_fork_in_child)
