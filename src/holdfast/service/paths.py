"""Paths: which endpoint a request is for.

A path has fixed parts, and at its third place a name perhaps: `/v1/locks/{name}/acquire`. So one look
into a table finds its endpoint. All else goes to another application: the files of the page, and
what is not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from .answers import Application, Receive, Scope, Send

NAME_AT = 3
"""Where in a path, split at its slashes, a name may stand; the first part is empty."""
PATH_NAME = "holdfast.path_name"
"""Where the scope has the name in the path, as it was sent."""


class Paths:
    """The endpoints by their paths, as an ASGI application."""

    def __init__(self, endpoints: Mapping[str, Application], otherwise: Application) -> None:
        """The keys of `endpoints` are paths, whose third part may be a parameter in braces."""
        self._otherwise = otherwise
        self._fixed: dict[str, Application] = {}
        self._named: dict[tuple[str, ...], Application] = {}
        for path, endpoint in endpoints.items():
            if "{" in path:
                parts = path.split("/")
                assert parts.pop(NAME_AT).startswith("{"), path
                self._named[tuple(parts)] = endpoint
            else:
                self._fixed[path] = endpoint

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._otherwise(scope, receive, send)
        path: str = scope["path"]
        parts = path.split("/")
        if len(parts) > NAME_AT and (name := parts.pop(NAME_AT)):
            endpoint = self._named.get(tuple(parts))
            if endpoint is not None:
                scope[PATH_NAME] = name
                return endpoint(scope, receive, send)
        return self._fixed.get(path, self._otherwise)(scope, receive, send)
