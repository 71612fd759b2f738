"""The reasons for which leases are lost, in one word each: a label may not be a sentence."""

from __future__ import annotations

EXPIRED = "expired"
ENDED = "ended_at_store"
FORGOTTEN = "forgotten"
MAX_HOLD = "max_hold"
CLOSED = "closed"
RESIGNED = "resigned"
WITH_ANOTHER = "with_another"
OTHER = "other"

REASONS = {
    "its end came before a renewal was answered": EXPIRED,
    "the store says that it has ended": ENDED,
    "the store says that it had ended before it was released": ENDED,
    "the store has forgotten it": FORGOTTEN,
    "its max_hold is over": MAX_HOLD,
    "its manager was closed": CLOSED,
    "the event loop of its manager has ended": CLOSED,
    "it was resigned": RESIGNED,
}
"""The sentences of the engine, and the word for each."""
WORDS = (*dict.fromkeys(REASONS.values()), WITH_ANOTHER, OTHER)


def reason_of(detail: str) -> str:
    """Returns the word for what the event `lost` says."""
    word = REASONS.get(detail)
    if word is None:
        word = WITH_ANOTHER if "which it was taken with" in detail else OTHER
    return word
