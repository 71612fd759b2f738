"""An S3 that keeps conditions, by obstore: in both worlds, with and without a stamp."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from fences.sites import Site, die
from holdfast.fences import ObjectFence, Token
from stores import s3_server

_buckets: dict[str, Any] = {}


class ObjectSite(Site):
    prunes = False
    stamp = False

    def __init__(self, folder: Path, single_use: bool = False) -> None:
        super().__init__(folder, single_use)
        if str(folder) not in _buckets:
            _buckets[str(folder)] = s3_server().bucket(f"b{os.urandom(8).hex()}")
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

    def highest(self, resource: str) -> int:
        highest: int = self._verb("highest", resource)
        return highest

    def reset(self, resource: str, to: int = 0) -> int:
        was: int = self._verb("reset", resource, by="a test", to=to)
        return was

    def prune(self) -> int:
        raise NotImplementedError

    def verify(self) -> None:
        self._verb("verify", "probes/")

    def crash(self, resource: str, value: str, token: int) -> None:
        bucket = self.store.prefix or ""
        die(
            "import os, signal\n"
            "from obstore.store import S3Store\n"
            "from holdfast.fences import ObjectFence\n"
            f"store = S3Store({_name(self.store)!r}, prefix={bucket!r}, endpoint={s3_server().url!r},"
            " access_key_id='test', secret_access_key='test', region='us-east-1',"
            " virtual_hosted_style_request=False, client_options={'allow_http': True})\n"
            "def die(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
            "ObjectFence._try_put = die\n"
            f"ObjectFence(store).put({resource!r}, {value!r}, {token})\n"
        )


def _name(store: Any) -> str:
    name: str = store.config["bucket"]
    return name


class AsyncObjectSite(ObjectSite):
    def _verb(self, verb: str, *args: Any, **options: Any) -> Any:
        async def call() -> Any:
            return await getattr(self.fence, f"{verb}_async")(*args, **options)

        return asyncio.run(call())


class StampedSite(ObjectSite):
    stamp = True
