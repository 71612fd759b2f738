"""Sites: where a server runs, on this machine's own network or in a room of another."""

from __future__ import annotations

from collections.abc import Sequence

LOOPBACK = "127.0.0.1"


class Site:
    """This machine's own network, where everybody is at the same address."""

    host = LOOPBACK
    """The address at which a server listens, and at which others at such sites reach it."""
    inside: Sequence[str] = ()
    """The command under which a program runs there."""

    @property
    def far(self) -> bool:
        """Whether this process cannot reach the site by its address."""
        return self.host != LOOPBACK

    def open(self, port: int) -> None:
        """Lets this process reach a port of the site by the same port of the loopback address."""


HERE = Site()
