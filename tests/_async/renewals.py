"""Renewals, which a test asks for and hears of rather than waits for."""

from __future__ import annotations

from typing import Any

from worlds.aio import eventually


def heard(session: Any, owner: str) -> list[str]:
    """Returns a list to which the kind of each event of a lease is added from now on."""
    kinds: list[str] = []

    def listen(event: Any) -> None:
        if event.owner == owner:
            kinds.append(event.kind)

    session.listeners.add(listen)
    return kinds


async def renewed(session: Any, owner: str) -> None:
    """Has the keeper renew a lease now, and waits until the store has confirmed it."""
    kinds = heard(session, owner)
    session.look_at([owner])
    await eventually(lambda: "renewed" in kinds)
