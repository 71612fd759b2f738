"""Advice of the library, which is worded for programs, in the words of the command line."""

from __future__ import annotations

import re

ADVICE = (
    (
        r"give a token that it knows to connect\(token=…\), or name its file in (\S+);",
        r"name the file of a token that it knows in \1;",
    ),
    (
        r"give it to connect\(token=…\), or name its file in (\S+)",
        r"name its file in \1",
    ),
    (
        r"give all clients of the store max_ttl=([\d.e+]+)",
        r"end the URL of the store with ?max_ttl=\1, in all clients",
    ),
    (
        r"give connect\(\) a larger max_ttl, the same in all clients",
        "end the URL of the store with a larger one, as in ?max_ttl=3600, the same in all clients",
    ),
    (
        r"raise the store's tokens above the highest seen, or reset\(\) the fence",
        "raise the store's tokens above the highest seen by: holdfast break NAME --token-above N",
    ),
    (
        r"reset\(\) the fence",
        "let a program reset the fence",
    ),
    (
        r"cannot be given in the URL; give it to connect\(\)",
        "cannot be given in a URL, only by a program",
    ),
)
"""Patterns, each with what stands for it on the command line."""


def as_typed(text: str) -> str:
    """Returns `text` with options and commands in place of functions and their parameters."""
    for pattern, words in ADVICE:
        text = re.sub(pattern, words, text)
    return text
