"""Bad input is refused here, before anything is sent, in words that say what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import isfinite

from .errors import ConfigError

MAX_NAME_BYTES = 1024
MAX_NAMES = 128
MAX_TTL = 366 * 86400.0
MAX_CAPACITY = 2**31 - 1
MAX_LABEL = 256
MAX_OWNER = 64
MAX_TOKEN_ABOVE = 2**52
"""As a time in µs this is in the year 2112. A Redis counts exactly up to twice that."""


def printable(what: str, text: object, limit: int) -> str:
    """Returns `text` if a person could read it: no control characters, not too long."""
    if not isinstance(text, str):
        raise ConfigError(f"{what} must be a str, not {type(text).__name__}: {text!r:.80}")
    if not text:
        raise ConfigError(f"{what} is empty; give it at least one character")
    if not (text.isascii() and text.isprintable()):
        for position, char in enumerate(text):
            if _unprintable(ord(char)):
                raise ConfigError(
                    f"{what} has a control character or a lone surrogate, U+{ord(char):04X}, "
                    f"at position {position}: {ascii(text)[:80]}"
                )
    size = len(text) if text.isascii() else len(text.encode())
    if size > limit:
        raise ConfigError(f"{what} has {size} bytes; at most {limit} are allowed: {text[:40]!r}…")
    return text


def _unprintable(code: int) -> bool:
    # C0, DEL and C1, surrogates, and the two separators that break a line.
    return code < 32 or 127 <= code < 160 or 0xD800 <= code <= 0xDFFF or 0x2028 <= code <= 0x2029


def lock_name(name: object) -> str:
    return printable("the lock's name", name, MAX_NAME_BYTES)


def template(text: object) -> None:
    """Refuses what is no template for a lock's name; its fields are checked with the function."""
    if not isinstance(text, str):
        raise ConfigError(
            'locked() takes the name of a lock, as in @locks.locked("report:{customer_id}"), not '
            f"{text!r:.80}"
        )


def lock_names(names: object) -> list[str]:
    """Returns the names of several locks: each once, in sorted order."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise ConfigError(
            f"multi() takes a list of names, not {names!r:.80}; for one lock, write lock(name) or "
            "multi([name])"
        )
    several: set[str] = set()
    for name in names:
        several.add(lock_name(name))
        if len(several) > MAX_NAMES:
            raise ConfigError(
                f"multi() was given more than {MAX_NAMES} names, which is too many to be taken at "
                "once; take one lock that stands for all"
            )
    if not several:
        raise ConfigError("multi() was given no name; give it at least one")
    return sorted(several)


def parameter(what: str, text: object) -> str:
    """Returns `text` if it may be the name of a parameter."""
    if not isinstance(text, str) or not text.isidentifier():
        raise ConfigError(f"{what} is the name of a parameter of the function, not {text!r:.80}")
    return text


def namespace(name: object) -> str:
    return printable("the namespace", name, MAX_NAME_BYTES)


def prefix(text: object) -> str:
    return "" if text == "" else printable("the prefix", text, MAX_NAME_BYTES)


def label(text: object) -> str:
    return "" if text == "" else printable("the label", text, MAX_LABEL)


def owner(text: object) -> str:
    owner_id = printable("the owner id", text, MAX_OWNER)
    if not owner_id.isascii() or " " in owner_id:
        raise ConfigError(f"the owner id must be ASCII without spaces: {owner_id!r}")
    return owner_id


def _number(what: str, value: object) -> float:
    # A bool is an int to Python, and ttl=True is a mistake; so is a string from a config file.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{what} must be a number of seconds, not {value!r:.80}")
    try:
        number = float(value)
    except OverflowError:
        raise ConfigError(f"{what} is too large: {value!r:.40}") from None
    if not isfinite(number):
        raise ConfigError(f"{what} must be finite, not {number}")
    return number


def ttl(value: object, what: str = "ttl") -> float:
    seconds = _number(what, value)
    if seconds <= 0:
        raise ConfigError(f"{what} must be more than 0 seconds, not {seconds:g}")
    if seconds > MAX_TTL:
        raise ConfigError(f"{what} of {seconds:g} s is over the limit of {MAX_TTL:g} s (366 days)")
    return seconds


def timeout(value: object) -> float | None:
    """Returns the seconds to wait; None waits for ever."""
    if value is None:
        return None
    if isinstance(value, float) and value == float("inf"):
        raise ConfigError("timeout must be finite; to wait for ever, give None")
    seconds = _number("timeout", value)
    if seconds < 0:
        raise ConfigError(f"timeout must not be negative: {seconds:g}; 0 tries once, None waits")
    return seconds


def delay(value: object) -> float:
    """Returns the seconds for which a lock stays closed after an expiry."""
    seconds = _number("lock_delay", value)
    if not 0 <= seconds <= MAX_TTL:
        raise ConfigError(f"lock_delay must be from 0 to {MAX_TTL:g} seconds, not {seconds:g}")
    return seconds


def at_least(value: object) -> float:
    seconds = _number("at_least", value)
    if seconds < 0:
        raise ConfigError(f"at_least must not be negative: {seconds:g}")
    return seconds


def permits(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"permits must be a whole number, not {value!r:.80}")
    if not 1 <= value <= MAX_CAPACITY:
        raise ConfigError(f"permits must be from 1 to {MAX_CAPACITY}, not {value}")
    return value


def token_above(value: object) -> int:
    """Returns a number that a lock's tokens are to be raised above."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"token_above must be a whole number, not {value!r:.80}")
    if not 0 <= value <= MAX_TOKEN_ABOVE:
        raise ConfigError(
            f"token_above must be from 0 to {MAX_TOKEN_ABOVE}, not {value!r:.40}: no store hands out "
            "such a token in this century"
        )
    return value


def flag(what: str, value: object, allowed: tuple[object, ...]) -> None:
    """Refuses a `value` that is not one of the allowed words: nothing merely truthy passes."""
    if not any(value is choice or (type(value) is str and value == choice) for choice in allowed):
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ConfigError(f"{what} must be one of {choices}, not {value!r:.80}")


_COROUTINE = 0x80 | 0x200
"""The flags of `async def`, and of one that yields, in a function's code."""


def callback(what: str, thing: object) -> None:
    """Refuses a callback that cannot be called, or that is `async def`: nobody would await it."""
    if not callable(thing):
        raise ConfigError(f"{what} must be given something to call, not {thing!r:.80}")
    function: object = thing
    while isinstance(function, partial):
        function = function.func
    for one in (function, getattr(type(function), "__call__", None)):  # noqa: B004
        code = getattr(one, "__code__", None)  # a method has its function's
        if code is not None and code.co_flags & _COROUTINE:
            raise ConfigError(
                f"{what} must be given a plain function, because nobody would await a coroutine; in "
                "asyncio, let the function create a task, or set an event that a task waits for"
            )
