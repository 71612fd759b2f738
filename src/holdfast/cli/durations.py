"""Lengths of time as people write them: 30s, 500ms, 1.5m, 2h, 1d; a bare number is seconds."""

from __future__ import annotations

from .arguments import UsageError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 366 * 86400.0


def seconds(option: str, text: str) -> float:
    number = text.rstrip("dhms")
    unit = text[len(number) :] or "s"
    # Only digits and one point: float() would take "1e9", "inf", "1_0" and digits of other scripts.
    digits = number.replace(".", "", 1)
    if unit not in _UNITS or not (digits.isascii() and digits.isdigit()):
        raise UsageError(
            f"{option} {text!r} is not a length of time; write a number and one of "
            f"{', '.join(_UNITS)}, such as {option} 30s or {option} 1.5m"
        )
    length = float(number) * _UNITS[unit]
    if length > _LONGEST:
        raise UsageError(f"{option} {text:.40} is too long; at most 366d are allowed")
    return length


def briefly(length: float) -> str:
    """Returns a length of time in few characters: 4.2s, 38s, 5m10s, 3h05m, 2d4h."""
    if length < 9.95:
        return f"{max(length, 0.0):.1f}s"
    whole = round(length)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    hours = whole % 86400 // 3600
    return f"{whole // 86400}d{hours}h" if hours else f"{whole // 86400}d"
