"""The plan of a run: a seed makes the moments of its faults, and whom they hit."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from .faults import FAULTS


class Moment(NamedTuple):
    """A moment of a run at which a fault happens."""

    wait: float
    """Seconds after the workers are under way, or after the fault before was mended."""
    lasts: float
    """Seconds until it is mended; 0: it is over at once."""


def chance_of(seed: int, *words: str) -> Random:
    """Returns the chance of one part of a run: the same for the same seed and words, everywhere."""
    return Random("/".join([str(seed), *words]))


def moments(chance: Random, fault: str, ttl: float, duration: float) -> list[Moment]:
    """Returns the moments of one kind of fault, one after the other, in so many seconds.

    There is at least one, and between two of them there is time to recover.
    """
    low, high = FAULTS[fault].lasts
    found: list[Moment] = []
    wait = chance.uniform(0.2, 0.6) * ttl
    end = wait
    while not found or end + high * ttl <= duration:
        found.append(Moment(wait, chance.uniform(low, high) * ttl))
        wait = chance.uniform(0.8, 1.6) * ttl
        end += found[-1].lasts + wait
    return found
