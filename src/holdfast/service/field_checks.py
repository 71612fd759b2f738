"""The checks of values that requests bring: each returns the value as the service uses it, or raises
`ConfigError`."""

from __future__ import annotations

import re
from collections.abc import Callable

from .. import checks
from ..errors import ConfigError
from ..model import Label

OWNER_PATTERN = r"^[A-Za-z0-9_.~-]{1,64}$"
_OWNER = re.compile(OWNER_PATTERN[:-1] + r"\Z")
KINDS = ("lock", "semaphore", "rwlock", "election", "once")
MAX_PID = 2**31 - 1
MAX_HOST = 255


def owner(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"the owner id must be a text, not {value!r:.80}")
    if not _OWNER.match(value):
        raise ConfigError(
            "an owner id has 1 to 64 characters of A-Z a-z 0-9 _ . ~ and -, which "
            f"{ascii(value)[:80]} has not"
        )
    return value


def boolean(what: str) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        if value is not True and value is not False:
            raise ConfigError(f"{what} must be true or false, not {value!r:.80}")
        return value

    return check


def fairness(value: object) -> bool | None:
    return None if value is None else boolean("fair")(value)


def whole(what: str, least: int, most: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{what} must be a whole number, not {value!r:.80}")
        if not least <= value <= most:
            raise ConfigError(f"{what} must be from {least} to {most}, not {value!r:.40}")
        return value

    return check


def seconds(what: str, least: float, most: float) -> Callable[[object], float]:
    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{what} must be a number of seconds, not {value!r:.80}")
        if not least <= value <= most:  # which nan is not
            raise ConfigError(
                f"{what} must be from {least:g} to {most:g} seconds, not {value!r:.40}"
            )
        return float(value)

    return check


def kind(value: object) -> str:
    if not isinstance(value, str) or value not in KINDS:
        raise ConfigError(f"kind must be one of {', '.join(KINDS)}, not {value!r:.80}")
    return value


def text(value: object) -> str:
    return checks.label(value)


def label(value: object) -> Label | str | None:
    """Returns the label, or its text alone, where the rest is the service's to say."""
    if value is None or isinstance(value, str):
        return value if value is None else checks.label(value)
    if not isinstance(value, dict):
        raise ConfigError(f"label must be a text, or have host, pid and text, not {value!r:.80}")
    unknown = value.keys() - {"host", "pid", "text"}
    if unknown:
        raise ConfigError(f"label has an unknown field {min(unknown)!a:.40}")
    host = value.get("host", "")
    if host != "":
        checks.printable("the label's host", host, MAX_HOST)
    pid = whole("the label's pid", 0, MAX_PID)(value.get("pid", 0))
    return Label(host, pid, checks.label(value.get("text", "")))
