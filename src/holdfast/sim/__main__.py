"""`python -m holdfast.sim`: run seeds, print the story of one that fails, and see that what is known to
be bad is caught."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from importlib import import_module

from ..errors import ConfigError
from .world import Maker, Result, World

BACKENDS = ("redis", "redlock")
MOST_FOR_A_VARIANT = 600
"""Seeds in which a variant that is known to be bad has to be caught."""
SHOWN = 5
COLLECT_EVERY = 50


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.sim", description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, default="redis")
    parser.add_argument("--seeds", type=int, default=1000, help="how many runs")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="one run, with its story")
    parser.add_argument("--variant", help="run this one that is known to be bad; 'all': every one")
    options = parser.parse_args(arguments)

    # What was killed is swept up when Python ends; none of that matters any more.
    sys.unraisablehook = lambda _: None
    store = import_module(f".stores.{options.backend}", __package__)
    variants: dict[str, Maker] = store.VARIANTS
    if options.variant not in (None, "all", *variants):
        parser.error(f"there is no variant {options.variant!r}; there are: {', '.join(variants)}")
    chosen = variants.get(options.variant)
    gc.disable()
    try:
        if options.seed is not None:
            return tell((chosen or store.plan), options.seed)
        if chosen is not None:
            return 0 if caught(options.variant, chosen, options.first) else 1
        good = options.variant == "all" or run(store.plan, options)
        bad = [caught(name, make, options.first) for name, make in variants.items()]
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if good and all(bad) else 1


def simulate(make: Maker, seed: int) -> Result:
    """One run. Nothing is tidied up in it: the last lines of what was killed must not run there."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    gc.disable()
    try:
        return World(make(), seed).run()
    finally:
        if seed % COLLECT_EVERY == 0:
            logging.disable()
            gc.collect()
            logging.disable(logging.NOTSET)
        sys.unraisablehook = hook


def tell(make: Maker, seed: int) -> int:
    result = simulate(make, seed)
    print("\n".join(result.story.lines()))
    print(f"\nseed {seed}: {len(result.violations)} violations, {result.grants} grants")
    for violation in result.violations:
        print(f"  {violation}")
    return 1 if result.violations else 0


def run(make: Maker, options: argparse.Namespace) -> bool:
    started = time.monotonic()
    failed: list[Result] = []
    grants = stale = steps = 0
    for seed in range(options.first, options.first + options.seeds):
        result = simulate(make, seed)
        grants += result.grants
        stale += result.stale_refused
        steps += result.steps
        if result.violations:
            failed.append(result)
    took = time.monotonic() - started
    print(
        f"{options.backend}: {options.seeds} runs, {grants} grants, {stale} stale writes refused by "
        f"the fence, {len(failed)} runs failed; {options.seeds / took:.0f} runs/s, {steps} steps"
    )
    if failed:
        first = failed[0]
        print("\n".join(first.story.lines()))
        for result in failed[:SHOWN]:
            print(f"seed {result.seed}: {result.violations[0]}")
        print(
            f"failed: {', '.join(str(result.seed) for result in failed)}; again with\n"
            f"  python -m holdfast.sim --backend {options.backend} --seed {first.seed}"
        )
    return not failed


def caught(name: str, make: Maker, first: int) -> bool:
    """A checker that has never caught anything proves nothing."""
    for seed in range(first, first + MOST_FOR_A_VARIANT):
        result = simulate(make, seed)
        if result.violations:
            print(f"  known to be bad, caught by seed {seed}: {name}: {result.violations[0]}")
            return True
    print(f"  known to be bad, and NOT caught in {MOST_FOR_A_VARIANT} runs: {name}")
    return False


if __name__ == "__main__":
    sys.exit(main())
