"""Connections on which nothing is said for a while."""

from __future__ import annotations

import subprocess

from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import redlock_nodes
from worlds.aio import eventually


def probed(server: RedisServer) -> bool:
    """Returns True if the system probes all connections to the server."""
    command = ["ss", "--tcp", "--numeric", "--options", "--no-header", "state", "established"]
    shown = subprocess.run(
        [*command, "dst", f"127.0.0.1:{server.port}"], capture_output=True, text=True, check=True
    )
    lines = shown.stdout.splitlines()
    return bool(lines) and all("timer:(keepalive," in line for line in lines)


async def test_idle_connections_are_probed() -> None:
    """Looks at the kernel's timers: a router on the way may silently forget an idle connection."""
    server = RedisServer()  # which nobody else has a connection to
    try:
        async with holdfast.connect(server.url) as locks:
            async with locks.lock("idle"):
                pass
            await eventually(lambda: probed(server))
    finally:
        server.stop()


async def test_idle_connections_to_nodes_are_probed() -> None:
    with redlock_nodes(3) as nodes:
        async with holdfast.connect(nodes.url, max_ttl=20.0) as locks:
            async with locks.lock("idle", ttl=20.0):
                pass
            await eventually(lambda: all(probed(node) for node in nodes.nodes))
