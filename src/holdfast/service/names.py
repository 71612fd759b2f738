"""Names in paths: percent-encoded, or `~` and the hexadecimal digits of their UTF-8.

Routes are matched on the path as it was sent, so a `/` in a name is `%2F` and no border. Software on
the way changes some paths: it takes out `.`, `..` and empty parts, or decodes `%2F`. A name may
therefore be given as `~` and hexadecimal digits; one that begins with `~` has to be.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from urllib.parse import unquote_to_bytes

from .problems import Problem


def decode(part: str) -> str:
    """Returns the text that a part of a path stands for; raises 422 if it stands for none."""
    if part.isalnum() and part.isascii():
        return part  # nearly all
    try:
        data = _bytes(part)
        return data.decode()
    except ValueError:
        raise Problem(
            "bad-input",
            f"the path has {part!a:.80} in it, which is neither percent-encoded UTF-8 nor ~ and "
            "hexadecimal digits of UTF-8",
        ) from None


_ENCODED = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*")


def _bytes(part: str) -> bytes:
    if not _ENCODED.fullmatch(part):
        raise ValueError("a percent sign stands alone")
    data = unquote_to_bytes(part)
    return unhexlify(data[1:]) if data.startswith(b"~") else data


def encode(text: str) -> str:
    """Returns `text` as a part of a path that no software on the way changes."""
    if text.replace("-", "").replace("_", "").isalnum() and text.isascii():
        return text
    return "~" + text.encode().hex()
