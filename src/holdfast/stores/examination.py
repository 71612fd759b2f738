"""The way from a URL to the doctor of its store."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ..clock import system_clock
from ..errors import BackendUnavailable, ConfigError
from ..findings import Finding
from ..refusals import as_public
from . import urls


def examine(
    url: Any, namespace: str, options: dict[str, Any], seconds: float, *, asynchronous: bool
) -> Sequence[Finding]:
    """Returns the findings about a store, which it is asked for in so many seconds.

    Nothing of the user's is changed. Raises `BackendUnavailable` if the store cannot be asked at all.
    """
    try:
        return _examine(url, namespace, options, seconds, asynchronous)
    except (BackendUnavailable, ConfigError) as error:
        raise as_public(error) from None


def _examine(
    url: Any, namespace: str, options: dict[str, Any], seconds: float, asynchronous: bool
) -> Sequence[Finding]:
    deadline = system_clock().now() + seconds
    if not isinstance(url, str) and urls.is_client(url):
        module = import_module(urls.CLIENT.doctor)
        found: Sequence[Finding] = module.examine_client(
            url, namespace, options, deadline, asynchronous=asynchronous
        )
        return found
    target = urls.parse(url)
    module = import_module(urls.SCHEMES[target.scheme].doctor)
    found = module.examine(target, namespace, options, deadline)
    return found
