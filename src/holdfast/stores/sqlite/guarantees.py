"""The guarantees of the embedded store, as data."""

from __future__ import annotations

from ...guarantees import Guarantees

SQLITE = Guarantees(
    store="sqlite",
    consistency="one machine: SQLite transactions on a local file",
    survives="the crash of any process, and a power cut (locks end, tokens go on rising); "
    "not the loss of the file",
    auto_release="at once when the holder's process dies, otherwise at the end of the TTL",
    clock_dependence="the machine's boot-time clock, which does not step and counts suspended time",
    token_source="microseconds: the wall clock when the machine booted, and from there the boot clock, "
    "minted in the grant's own transaction; a ceiling is kept on the disk ahead of it, so that neither "
    "a power cut nor a clock set back lowers it; it could go back only if the file is lost while it is "
    "ahead of the wall clock: within a minute of a reboot, or after that clock was set back",
    fair=True,
    wakeup="handed over by the release, with a datagram to the next waiter's process",
    safe_for=("efficiency", "correctness"),
    slots=True,
    every_change=True,
)
