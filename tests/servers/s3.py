"""A throw-away S3: moto, on a real socket. One request at a time, which makes its conditional put the
atomic step that it is on S3 (moto compares and stores in two)."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from . import web


class S3Server:
    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            create_backend_app,
        )

        app = DomainDispatcherApplication(create_backend_app)
        mutex = threading.Lock()
        self.ignore_conditions = False
        """As there are servers that do."""

        def one_at_a_time(environ: Any, start_response: Any) -> list[bytes]:
            if self.ignore_conditions:
                environ = {k: v for k, v in environ.items() if not k.startswith("HTTP_IF_")}
            # The body first: a slow sender must not hold up the others.
            environ["wsgi.input"] = _read(environ)
            with mutex:
                return list(app(environ, start_response))

        self._stack = ExitStack()
        self.url = self._stack.enter_context(web.wsgi(one_at_a_time))

    def bucket(self, name: str) -> Any:
        """A new bucket, as a store of obstore's."""
        import httpx
        from obstore.store import S3Store

        httpx.put(f"{self.url}/{name}", trust_env=False).raise_for_status()
        return S3Store(
            name,
            endpoint=self.url,
            access_key_id="test",
            secret_access_key="test",
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

    def stop(self) -> None:
        self._stack.close()


def _read(environ: dict[str, Any]) -> Any:
    from io import BytesIO

    return BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
