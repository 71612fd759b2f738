"""S3, Azure and GCS, by obstore: in both worlds, with and without a stamp."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fences.sites import Site, die
from holdfast.fences import ObjectFence, Token
from stores import azure_server, gcs_server, s3_server

_buckets: dict[str, Any] = {}


class ObjectSite(Site):
    prunes = False
    readers = False  # on S3 only with a stamp
    stamp = False
    server: Callable[[], Any] = staticmethod(s3_server)

    def __init__(self, folder: Path, single_use: bool = False) -> None:
        super().__init__(folder, single_use)
        if str(folder) not in _buckets:
            _buckets[str(folder)] = self.server().bucket(f"b{os.urandom(8).hex()}")
        self.store = _buckets[str(folder)]
        self.fence = ObjectFence(self.store, stamp=self.stamp, single_use=single_use)

    def _verb(self, verb: str, *args: Any, **options: Any) -> Any:
        return getattr(self.fence, verb)(*args, **options)

    def write(self, resource: str, value: str, token: Token) -> None:
        self._verb("put", resource, value, token)

    def read(self, resource: str) -> str | None:
        try:
            data: bytes = self._verb("get", resource)
        except FileNotFoundError:
            return None
        return data.decode()

    def overwrite(self, resource: str, value: str) -> None:
        import obstore

        obstore.put(self.store, resource, value.encode())

    def highest(self, resource: str) -> int:
        highest: int = self._verb("highest", resource)
        return highest

    def reset(self, resource: str, to: int = 0) -> int:
        was: int = self._verb("reset", resource, by="a test", to=to)
        return was

    def show(self, resource: str, token: Token) -> None:
        self._verb("guard", resource, token)

    def prune(self, older_than: float = 0.0) -> int:
        raise NotImplementedError

    def reset_floors(self, lock: Any = None, to: int = 0) -> None:
        raise NotImplementedError

    def verify(self) -> None:
        self._verb("verify", "probes/")

    def crash(self, resource: str, value: str, token: int) -> None:
        die(
            "import os, pickle, signal\n"
            "from holdfast.fences import ObjectFence\n"
            f"store = pickle.loads({pickle.dumps(self.store)!r})\n"
            "def die(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
            "ObjectFence._try_put = die\n"
            f"ObjectFence(store).put({resource!r}, {value!r}, {token})\n"
        )


class AsyncObjectSite(ObjectSite):
    def _verb(self, verb: str, *args: Any, **options: Any) -> Any:
        async def call() -> Any:
            return await getattr(self.fence, f"{verb}_async")(*args, **options)

        return asyncio.run(call())


class StampedSite(ObjectSite):
    readers = True
    stamp = True


class AzureSite(ObjectSite):
    readers = True
    server = staticmethod(azure_server)


class GcsSite(ObjectSite):
    readers = True
    server = staticmethod(gcs_server)
