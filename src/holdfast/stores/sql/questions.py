"""What the doctors of all databases say in the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import BackendUnavailable
from ...findings import Findings
from ..measures import judge_clocks, judge_round_trips, read_clock
from .connections import Connection
from .failures import Again, Lost

LOSES_LOCKS = "a lock that is forgotten while it is held lets a second holder in"
WHY_CLOCK = (
    "tokens start at the server's clock: after a failover to a server whose clock is behind, or after "
    "the clock was set back and data was lost, they may go back; and people are shown wrong times"
)


def open_connection(connection: Connection, address: str, deadline: float) -> None:
    """Opens a connection; raises `BackendUnavailable`, or `ConfigError` if we are not let in."""
    try:
        connection.open(deadline)
    except (Lost, Again) as error:
        connection.close()
        raise BackendUnavailable(f"{address}: {error}") from error


@contextmanager
def close_after(connection: Connection, address: str) -> Iterator[None]:
    """Closes the connection after the questions inside; one that breaks is `BackendUnavailable`."""
    try:
        yield
    except (Lost, Again) as error:
        raise BackendUnavailable(f"{address}: {error}") from error
    finally:
        connection.close()


def judge_time(findings: Findings, server: str, ask: Callable[[], float]) -> None:
    """Adds what the server's clock shows, and what TTLs the way to it allows."""
    reading = read_clock(server, ask)
    judge_clocks(findings, [reading], WHY_CLOCK, named=False)
    judge_round_trips(findings, reading.trip)


def judge_newer(findings: Findings, found: int, known: int) -> bool:
    """Adds that the tables are of another release; returns whether they are."""
    if found == known:
        return False
    findings.wrong(
        "tables",
        f"the tables have format {found}, and this release of Holdfast knows {known}",
        "it refuses them, since it does not know what they mean",
        "update Holdfast everywhere, or use another database",
    )
    return True
