"""Tells listeners of the tokens that the fences of this process refuse. Metrics hang here."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import StaleToken
from ..events import RefusalListener, refusals

PROBES = ("holdfast probe", "holdfast-probe-")
"""The beginnings of the names of what `verify` writes to: there a refusal is what is wanted."""


def on_refusal(listener: RefusalListener) -> Callable[[], None]:
    """Calls `listener(error)` for each token that a fence of this process refuses; returns how to stop.

    The listener is called where the fence compares, perhaps inside a transaction: it should be quick,
    and may not use the fence. What it raises is logged and otherwise ignored.
    """
    return refusals.add(listener, "on_refusal")


def tell(refused: StaleToken) -> None:
    """Tells the listeners of a refusal, unless it is one that `verify` wants to see."""
    if refusals and not any(probe in refused.resource for probe in PROBES):
        refusals.tell(refused)
