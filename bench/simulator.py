"""Simulated runs a second, of one process on one core.

The seeds are the same each time, and run in a process of their own, as `python -m holdfast.sim` runs
them.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from statistics import median

from holdfast.sim.runs import simulate_many

from .measure import Child, Row, Setting, say

STORES = {"redlock": 100, "redis": None, "etcd": None, "zookeeper": None}
"""The stores, and the runs a second that each has to reach, if any."""
WARM = 5


def figure(setting: Setting) -> list[Row]:
    rows = []
    for store, target in STORES.items():
        seeds = 20 if setting.quick else 300 if target else 100
        rates = []
        for _ in range(1 if setting.quick or target is None else 3):
            with Child("bench.simulator", store, seeds) as child:
                rates.append(child.receive())
        found = median(rates)
        met = None if target is None else found >= target
        aim = "" if target is None else f"≥ {target}"
        numbers = {"rates": rates, "seeds": seeds}
        what = store if target else f"  {store}"
        rows.append(Row(f"{what}, runs a second", f"{found:.0f}", "", None, aim, met, numbers))
    return rows


def main(store: str, seeds: str) -> None:
    plan = import_module(f"holdfast.sim.{store}.plan").plan
    simulate_many(plan, range(1, 1 + WARM))
    began = time.perf_counter()
    totals = simulate_many(plan, range(1, 1 + int(seeds)))
    took = time.perf_counter() - began
    if totals.failed:
        raise RuntimeError(f"the simulator found something wrong: {totals.failed[0]}")
    say(int(seeds) / took)


if __name__ == "__main__":
    main(*sys.argv[1:])
