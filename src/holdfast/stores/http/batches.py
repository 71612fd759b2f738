"""Batches: how the claims of one renewal are divided into requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...entries import Claim
from .codec import encode

CLAIMS, BYTES = 500, 256 << 10
"""Claims in one request, and the bytes of its body, at the most: every service takes so much, unless
its operator, or a proxy before it, allows less."""
REST = 160
"""The bytes that a claim has beside its name at the most: its owner id, its TTL."""


def batches(claims: Sequence[Claim]) -> Iterator[Sequence[Claim]]:
    """Yields the claims in parts, each of which fits into one request."""
    start = size = 0
    for index, claim in enumerate(claims):
        # In JSON a character of a name may take six bytes, or twelve.
        needed = len(encode(claim.name)) + REST
        if index > start and (index - start >= CLAIMS or size + needed > BYTES):
            yield claims[start:index]
            start, size = index, 0
        size += needed
    if claims:
        yield claims[start:]
