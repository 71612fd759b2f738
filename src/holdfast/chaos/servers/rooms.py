"""Rooms: a network of its own for the servers and workers of one lab, in which each has an address.

What one of them sends to another is packets, which can be cut off, lost or overtaken, each direction by
itself. This process is in none of the rooms, and cut off from none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .network import Network
from .processes import make_folder, remove_folder
from .proxy import Proxy
from .sites import Site

OWN = "conductor"
"""The room from which nobody is ever cut off."""


class Room(Site):
    """One room, for a server or a worker."""

    def __init__(self, network: Network, name: str, folder: Path) -> None:
        self.name = name
        self.host = network.room(name)
        self.inside = network.inside(name)
        self._network = network
        self._folder = folder
        self._bridges: list[Proxy] = []

    def open(self, port: int) -> None:
        path = self._folder / f"{port}"
        if not path.exists():
            self._network.door(self.name, port, path)
            self._bridges.append(Proxy(str(path), port=port))

    def close(self) -> None:
        for bridge in self._bridges:
            bridge.close()


class Rooms:
    """The rooms of a lab, by the names of its nodes and workers. `ServerError`: none can be had."""

    def __init__(self) -> None:
        self._network = Network()
        self._folder = make_folder("doors")
        self._rooms: dict[str, Room] = {}

    def room(self, name: str) -> Room:
        """Returns the room of this name; makes it first, if need be."""
        if name not in self._rooms:
            self._rooms[name] = Room(self._network, name, self._folder)
        return self._rooms[name]

    def disturb(
        self,
        names: Sequence[str],
        others: Sequence[str],
        out: dict[str, float],
        back: dict[str, float],
    ) -> None:
        """Disturbs what `names` send to `others` as `out` says, and what those send as `back` says."""
        for name in names:
            for other in others:
                if name != other:
                    self._network.disturb(self.room(name).name, self.room(other).name, **out)
                    self._network.disturb(self.room(other).name, self.room(name).name, **back)

    def mend(self) -> None:
        """Has everything arrive again."""
        self._network.mend()

    def disturbed(self) -> int:
        """Returns how many packets were lost or held up so far."""
        return self._network.disturbed()

    def stop(self) -> None:
        for room in self._rooms.values():
            room.close()
        self._network.stop()
        remove_folder(self._folder)
