"""The text of a bearer token: `holdfast_ID_SECRET`, and a checksum at its end.

The beginning is there for people and for programs that look for secrets in what is about to be
published; the checksum tells both a real token from a mistyped or invented one, without asking anybody.
The id is no secret: it finds the badge, and is shown in lists and logs.

The secret has 256 random bits. So its SHA-256 may be kept: nobody can try all secrets, and a slow hash,
which passwords need, would only slow down the service.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

BEGINNING = "holdfast_"
ID_LENGTH = 10
SECRET_LENGTH = 43
"""Digits of base 62: more than 256 bits."""
CHECKSUM_LENGTH = 6
LENGTH = len(BEGINNING) + ID_LENGTH + 1 + SECRET_LENGTH + CHECKSUM_LENGTH
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHAPE = re.compile(
    rf"{BEGINNING}([0-9A-Za-z]{{{ID_LENGTH}}})_[0-9A-Za-z]{{{SECRET_LENGTH + CHECKSUM_LENGTH}}}",
    re.ASCII,
)

_ANYWHERE = re.compile(rf"({BEGINNING}[0-9A-Za-z]{{{ID_LENGTH}}}_)[0-9A-Za-z]+", re.ASCII)


class Bearer(NamedTuple):
    """A bearer token that somebody shows. Its text never gets into a message or a log."""

    id: str
    digest: str
    """The SHA-256 of the whole text, in hex."""

    def __repr__(self) -> str:
        return f"<Bearer {self.id}>"


def generate() -> tuple[str, Bearer]:
    """Returns the text of a new bearer token, and the bearer that it makes."""
    number = "".join(secrets.choice(_DIGITS) for _ in range(ID_LENGTH))
    secret = "".join(secrets.choice(_DIGITS) for _ in range(SECRET_LENGTH))
    text = f"{BEGINNING}{number}_{secret}"
    text += _checksum(text)
    return text, Bearer(number, _digest(text))


def parse(text: str) -> Bearer | None:
    """Returns the bearer of a token's text; None if no token of ours looks like that."""
    shape = _SHAPE.fullmatch(text) if len(text) == LENGTH else None
    if shape is None or _checksum(text[:-CHECKSUM_LENGTH]) != text[-CHECKSUM_LENGTH:]:
        return None
    return Bearer(shape.group(1), _digest(text))


def redact(text: str) -> str:
    """Returns `text` without the secrets of the tokens in it, for logs."""
    return _ANYWHERE.sub(r"\1…", text) if BEGINNING in text else text


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _checksum(text: str) -> str:
    number = crc32(text.encode())
    digits = ""
    for _ in range(CHECKSUM_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
