"""The store that a command was told to use."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .. import Locks, connect
from .arguments import UsageError
from .report import say


def place_of(options: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Returns the URL and the namespace that the options name, by themselves or by `--store`."""
    url, namespace = options.get("--url"), options.get("--namespace")
    name = options.get("--store")
    if name is None:
        return url, namespace
    if url is not None:
        raise UsageError("--store and --url exclude each other; give one of them")
    from .config import store_named  # slow to import, and only needed here

    place = store_named(name)
    return place.url, place.namespace if namespace is None else namespace


def url_of(options: Mapping[str, str]) -> str:
    """Returns the URL of the store that the options, or the environment, name; it must be named."""
    url = place_of(options)[0]
    if url is None:
        url = os.environ.get("HOLDFAST_URL") or None
    if url is None:
        raise UsageError("name the store with --url, --store or $HOLDFAST_URL")
    return url


def open_store(options: Mapping[str, str], label: str = "") -> Locks:
    """Returns the manager of the store that the options, or the environment, name."""
    url, namespace = place_of(options)
    if namespace is None:
        namespace = "holdfast"
    if url is None and not os.environ.get("HOLDFAST_URL"):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is said here, in one line
            locks = connect(namespace=namespace, label=label)
        say(
            f"the locks in {locks.url} serve this machine and user only; name another store "
            "with --url, --store or $HOLDFAST_URL"
        )
        return locks
    locks = connect(url, namespace=namespace, label=label)
    if locks.url.startswith("memory:"):
        say("locks in memory:// exclude nobody outside this very command")
    return locks
