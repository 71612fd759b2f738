"""Searches all sizes of the shipped variant, and shows that every broken one is caught."""

from __future__ import annotations

import argparse
import sys
import time

from .cases import (
    BROKEN,
    HARMLESS,
    LARGE,
    LARGE_LOST,
    SMALL,
    SMALL_LOST,
    Broken,
    Return,
    Size,
    run,
)
from .rules import BY_THE_CLOCK, SHIPPED, Rules
from .search import Found
from .trace import trace_text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m model", description=__doc__)
    parser.add_argument("--small", action="store_true", help="only what the tests run")
    parser.add_argument(
        "--size", type=int, metavar="N", help="only this size of the shipped variant"
    )
    parser.add_argument("--broken", metavar="TEXT", help="only variants with this in their name")
    parser.add_argument("--list", action="store_true", help="say what there is")
    chosen = parser.parse_args()

    remembered = [("Shipped", SHIPPED, one) for one in SMALL + (LARGE if not chosen.small else ())]
    lost = SMALL_LOST + (LARGE_LOST if not chosen.small else ())
    sizes = [*remembered, *(("Shipped, a majority lost", BY_THE_CLOCK, one) for one in lost)]
    broken = tuple(one for one in BROKEN if one.small or not chosen.small)
    harmless: tuple[Broken, ...] = () if chosen.small else HARMLESS
    if chosen.size is not None:
        sizes, broken, harmless = [sizes[chosen.size]], (), ()
    if chosen.broken is not None:
        sizes, broken, harmless = [], named(broken, chosen.broken), named(harmless, chosen.broken)
    if chosen.list:
        for number, (title, _, size) in enumerate(sizes):
            print(f"{number:3} {title}: {size}")
        for one in (*broken, *harmless):
            print(f"    {one.name}: {one.size}")
        return 0
    # Lists, so that one failure does not hide the rest.
    fine = [holds(title, rules, size) for title, rules, size in sizes]
    fine += [breaks(one) for one in broken]
    fine += [holds(f"Harmless: {one.name}", one.rules, one.size) for one in harmless]
    return 0 if all(fine) else 1


def named(variants: tuple[Broken, ...], text: str) -> tuple[Broken, ...]:
    return tuple(one for one in variants if text in one.name)


def holds(title: str, rules: Rules, size: Size | Return) -> bool:
    print(f"{title}: {size}", flush=True)
    began = time.monotonic()
    found = run(rules, size)
    print(f"  {'BROKEN' if found.trace else 'holds'}: {figures(found, began)}")
    print("  " + ", ".join(f"{kind}: {count:,}" for kind, count in sorted(found.seen.items())))
    if found.trace:
        print(trace_text(found))
    print(flush=True)
    return not found.trace


def breaks(one: Broken) -> bool:
    print(f"Broken: {one.name} ({one.size})", flush=True)
    began = time.monotonic()
    found = run(one.rules, one.size)
    print(f"  {'caught' if found.trace else 'NOT CAUGHT'}: {figures(found, began)}")
    if found.trace:
        print(trace_text(found))
    print(flush=True)
    return bool(found.trace)


def figures(found: Found, began: float) -> str:
    seconds = time.monotonic() - began
    return f"{found.states:,} states, {found.steps:,} steps, depth {found.depth}, {seconds:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
