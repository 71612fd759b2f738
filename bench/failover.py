"""A leader is killed, paused or cut off: how long until the next one leads, on each store.

As in the failover drill of the tests, whose processes and servers these are. There is no floor to
compare with: the gap is the rest of the leader's TTL at the most, unless the store notices its death
before.
"""

from __future__ import annotations

import sys
from statistics import median

from .measure import ROOT, Row, Setting, compare, duration

sys.path.insert(0, str(ROOT / "tests"))  # the drill, and its servers

OWN_ADDRESSES = ("redis+cluster", "redis+sentinel", "redlock")


def figure(setting: Setting) -> list[Row]:
    from failover.drill import CUT_OFF, KILLED, PAUSED, TTL, drill
    from stores import STORES

    rows = []
    for store, serve in STORES.items():
        if store == "memory":
            continue
        folder = setting.folder / store
        folder.mkdir()
        faults = [KILLED, PAUSED]
        if store not in ("sqlite", *OWN_ADDRESSES):
            faults.append(CUT_OFF)
        for fault in faults:
            gaps = []
            for _ in range(1 if setting.quick else 5):
                with serve(folder) as url:
                    gaps.append(drill(url, fault).gap)
            beside = f"the leader's TTL, {duration(TTL)}"
            gap = median(gaps)
            rows.append(compare(f"{store}: {fault}", duration(gap), beside, gap / TTL, gaps=gaps))
    return rows
