"""Runs: one, or many."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from typing import NamedTuple

from .calm import CalmWorld
from .plan import PlanMaker
from .world import Result, World

FULL_COLLECTION = 100
"""Runs after which Python's older generations are collected too: some tasks of killed processes are
freed only by a second collection."""


def simulate(make: PlanMaker, seed: int) -> Result:
    """Returns the result of one run.

    Nothing is collected meanwhile: the last lines of killed tasks must not run in it.
    """
    gc.disable()
    plan = make(seed)
    return (CalmWorld if plan.calm else World)(plan, seed).run()


def collect_garbage(seed: int) -> None:
    """Frees what the run of `seed` has left; its result has to be forgotten by then.

    The next run uses the same memory again, while it is still in the processor's caches. Mostly only
    the youngest generation is collected, which is quick.
    """
    gc.collect(0 if seed % FULL_COLLECTION else 2)


def silence_python() -> None:
    """Silences, for good, what Python says when it collects coroutines of killed processes."""
    sys.unraisablehook = lambda _: None
    logging.disable()
    warnings.simplefilter("ignore")


class Totals(NamedTuple):
    """The totals of many runs."""

    grants: int = 0
    stale: int = 0
    steps: int = 0
    failed: tuple[tuple[int, str], ...] = ()
    """The seed of each run that failed, and its first violation."""

    def plus(self, other: Totals) -> Totals:
        return Totals(
            self.grants + other.grants,
            self.stale + other.stale,
            self.steps + other.steps,
            self.failed + other.failed,
        )


def simulate_many(make: PlanMaker, seeds: range) -> Totals:
    """Returns the totals of these runs. Nothing else may happen in this Python process meanwhile."""
    silence_python()
    totals = Totals()
    gc.disable()
    gc.collect()
    gc.freeze()  # the program itself need not be searched each time
    for seed in seeds:
        result = simulate(make, seed)
        failed = ((seed, result.violations[0]),) if result.violations else ()
        totals = totals.plus(Totals(result.grants, result.stale_refused, result.steps, failed))
        del result
        collect_garbage(seed)
    gc.unfreeze()
    return totals
