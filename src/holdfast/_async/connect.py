"""`connect()`: from a URL to a manager. Only this looks up which store a URL names."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Unpack, cast

from .. import checks
from ..events import Listener
from ..stores import urls
from ..stores.options import RedisClient, SqlAlchemyEngine, SqlAlchemyUrl, StoreOptions
from .manager import Locks
from .opening import Opening


def connect(
    url: str | RedisClient | SqlAlchemyEngine | SqlAlchemyUrl | None = None,
    *,
    namespace: str = "holdfast",
    label: str = "",
    on_event: Listener | None = None,
    **options: Unpack[StoreOptions],
) -> Locks:
    """Returns a manager of locks on the store that `url`, or else `$HOLDFAST_URL`, names.

    In place of a URL it may be a client of redis-py, or an engine or URL of SQLAlchemy, that you have:
    its server is the store then.

    Without either it is the embedded store in the user's state folder, which serves one machine
    and one user; a warning says so once. `namespace` keeps the users of one store apart, `label` is
    shown to people who look at a lock, `on_event` is told what happens to leases.
    Nothing is opened until the first use, or until the manager is entered by `with`.
    """
    checks.namespace(namespace)
    checks.label(label)
    if on_event is not None:
        checks.callback("on_event", on_event)  # before anything is looked up
    url, unnamed = named_store(url)
    given = cast(dict[str, Any], options)
    world = __name__.split(".")[-2]
    if not isinstance(url, str) and urls.is_client(url):
        module = import_module(urls.CLIENT.module_in(world))
        shown, guarantees, opener = module.prepare(url, namespace, given)
    else:
        target = urls.parse(url)
        module = import_module(urls.SCHEMES[target.scheme].module_in(world))
        guarantees, opener = module.prepare(target, namespace, given)
        shown = str(target)
    opening = Opening(shown, namespace, guarantees, opener, label)
    locks = Locks(opening, namespace, unnamed, (url, given))
    if on_event is not None:
        locks.on_event(on_event)
    return locks


def named_store(url: Any) -> tuple[Any, bool]:
    """Returns the store that is used where `url` was given, and whether nobody has named it."""
    if url is None:
        url = os.environ.get("HOLDFAST_URL") or None
    return (_embedded_store(), True) if url is None else (url, False)


_warned = False


def _embedded_store() -> str:
    """Returns the URL of the store that is taken where none is named, and warns of it once."""
    global _warned
    from urllib.parse import quote

    from ..stores.sqlite.location import default_path

    path = default_path()
    if not _warned:
        import warnings

        _warned = True
        warnings.warn(
            f"no store was named, so locks are kept in {path}: they serve this machine and this "
            "user only; name a store with connect(url) or $HOLDFAST_URL",
            stacklevel=4,
        )
    return f"sqlite://{quote(path)}"
