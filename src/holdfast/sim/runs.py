"""One run, and many of them."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from typing import NamedTuple

from .calm import CalmWorld
from .world import Maker, Result, World

SWEEP_ALL = 100
"""Runs after which older things are looked at, too: some that are killed die only at the second try."""


def simulate(make: Maker, seed: int) -> Result:
    """One run. Nothing is tidied up in it: the last lines of what was killed must not run there."""
    gc.disable()
    plan = make(seed)
    return (CalmWorld if plan.calm else World)(plan, seed).run()


def sweep_up(seed: int) -> None:
    """What this run has left; its result has to be forgotten by then. The next one uses the same memory
    again, while that is still in the processor's caches. Looking only at what is new is quick."""
    gc.collect(0 if seed % SWEEP_ALL else 2)


def hush() -> None:
    """From now on nobody in this process hears of what Python finds when it tidies up, now or at its
    end: coroutines of the killed, never awaited."""
    sys.unraisablehook = lambda _: None
    logging.disable()
    warnings.simplefilter("ignore")


class Sums(NamedTuple):
    """What came of many runs."""

    grants: int = 0
    stale: int = 0
    steps: int = 0
    failed: tuple[tuple[int, str], ...] = ()

    def plus(self, other: Sums) -> Sums:
        return Sums(
            self.grants + other.grants,
            self.stale + other.stale,
            self.steps + other.steps,
            self.failed + other.failed,
        )


def some(make: Maker, seeds: range) -> Sums:
    """In a process of its own, perhaps, in which nothing else happens."""
    hush()
    sums = Sums()
    gc.disable()
    gc.collect()
    gc.freeze()  # the program itself need not be looked through each time
    for seed in seeds:
        result = simulate(make, seed)
        failed = ((seed, result.violations[0]),) if result.violations else ()
        sums = sums.plus(Sums(result.grants, result.stale_refused, result.steps, failed))
        del result
        sweep_up(seed)
    gc.unfreeze()
    return sums
