"""Numbers that count something, written so that nobody else can tell how they count.

A Feistel network over 64 bits with a key of this process: each number has one text, and back.
"""

from __future__ import annotations

import os
import re
from hashlib import blake2s

_ROUNDS = range(4)
_HALF = 0xFFFFFFFF
_SHAPE = re.compile(r"[0-9a-f]{16}", re.ASCII)


class HiddenNumbers:
    """Numbers from 0 to 2**64 - 1, and their texts of 16 hexadecimal digits."""

    def __init__(self) -> None:
        self._key = os.urandom(16)

    def hide(self, number: int) -> str:
        """Returns the text of a number."""
        left, right = number >> 32, number & _HALF
        for turn in _ROUNDS:
            left, right = right, left ^ self._mix(turn, right)
        return f"{left:08x}{right:08x}"

    def reveal(self, text: str) -> int | None:
        """Returns the number of a text; None if it is no text of a number."""
        if not _SHAPE.fullmatch(text):
            return None
        left, right = int(text[:8], 16), int(text[8:], 16)
        for turn in reversed(_ROUNDS):
            left, right = right ^ self._mix(turn, left), left
        return left << 32 | right

    def _mix(self, turn: int, half: int) -> int:
        data = bytes((turn,)) + half.to_bytes(4, "big")
        return int.from_bytes(blake2s(data, digest_size=4, key=self._key).digest(), "big")
