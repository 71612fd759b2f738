"""Other libraries' locks on etcd: the ones that install from PyPI today and run beside one grpcio.

etcetra and etcd3 do not: they need a gRPC, or a protobuf, that is years old.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

Give = Callable[[], Awaitable[object]]
Take = Callable[[], Awaitable[Give]]

CLIENT_PY, AETCD = "etcd-client-py", "aetcd"


async def client_py(port: int, name: bytes) -> Take:
    """Returns a lock by the server's own Lock call, from a client in Rust."""
    import etcd_client  # type: ignore[import-not-found, import-untyped, unused-ignore]

    client: Any = etcd_client.Client([f"http://127.0.0.1:{port}"])
    option = etcd_client.EtcdLockOption(lock_name=name, timeout=60.0, ttl=600)

    async def take() -> Give:
        locked = client.with_lock(option)
        await locked.__aenter__()
        return lambda: locked.__aexit__(None, None, None)

    return take


async def aetcd(port: int, name: bytes) -> Take:
    """Returns a lock by a key that is put if it is not there, and a watch of its deletion."""
    import aetcd  # type: ignore[import-not-found, import-untyped, unused-ignore]

    lock = aetcd.Client(host="127.0.0.1", port=port).lock(name, ttl=600)

    async def take() -> Give:
        assert await lock.acquire(timeout=None)
        give: Give = lock.release
        return give

    return take


PEERS: dict[str, Callable[[int, bytes], Coroutine[Any, Any, Take]]] = {
    CLIENT_PY: client_py,
    AETCD: aetcd,
}


async def turn(take: Take) -> None:
    """Takes a lock, and gives it back at once."""
    give = await take()
    await give()
