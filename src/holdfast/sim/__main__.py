"""`python -m holdfast.sim`: run seeds, print the trace of one that fails, and make sure that variants
which are known to be bad are caught."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context

from ..errors import ConfigError
from .plan import Plan, PlanMaker
from .runs import Totals, collect_garbage, silence_python, simulate, simulate_many
from .world import FAILURE, UNENDED

BACKENDS = ("redis", "redlock", "etcd", "zookeeper")
MOST_FOR_A_VARIANT = 600
"""Seeds in which a variant that is known to be bad has to be caught."""
NEW_SEEDS = 10**12
"""The least of the seeds that `--first new` stands for."""
SHOWN = 5
"""Failed runs whose violations are printed."""
CHUNK = 100
"""Runs that a worker process is given at once."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.sim", description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, default="redis")
    parser.add_argument("--seeds", type=int, default=1000, help="how many runs")
    parser.add_argument(
        "--first",
        type=_first_seed,
        default=1,
        help="the first seed; 'new': seeds that no earlier run had, for the runs of CI, while the "
        "variants that are known to be bad keep theirs",
    )
    parser.add_argument("--seed", type=int, help="one run, with its trace")
    parser.add_argument(
        "--calm",
        action="store_true",
        help="runs in which nothing fails: several tasks of each client want a few locks, and nothing "
        "may be late, lost or left behind",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the runs")
    parser.add_argument(
        "--variant",
        help="run only this variant that is known to be bad; 'all': every one; 'none': only the seeds",
    )
    options = parser.parse_args(arguments)

    # Killed tasks are collected when Python ends; what they say then does not matter.
    sys.unraisablehook = lambda _: None
    store = import_module(f".{options.backend}.plan", __package__)
    variants: dict[str, PlanMaker] = {
        name: _for_every_seed(kind) for name, kind in store.VARIANTS.items()
    }
    plan: PlanMaker = store.calm if options.calm else store.plan
    if options.variant not in (None, "all", "none", *variants):
        parser.error(f"there is no variant {options.variant!r}; there are: {', '.join(variants)}")
    chosen = variants.get(options.variant)
    silence_python()
    gc.disable()
    try:
        if options.seed is not None:
            return show_run(chosen or plan, options.seed)
        if chosen is not None:
            return 0 if check_variant(options.variant, chosen, _for_variants(options)) else 1
        if options.first >= NEW_SEEDS:
            print(f"{options.backend}: the first seed is {options.first}", flush=True)
        good = options.variant == "all" or run_seeds(plan, options)
        bad = [
            check_variant(name, make, _for_variants(options))
            for name, make in variants.items()
            if options.variant == "all"
            or (options.variant is None and store.VARIANTS[name].calm == options.calm)
        ]
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if good and all(bad) else 1


def _first_seed(text: str) -> int:
    """Returns the first seed that `text` asks for; new ones are milliseconds since the epoch."""
    return time.time_ns() // 1_000_000 if text == "new" else int(text)


def _for_variants(options: argparse.Namespace) -> int:
    """Returns the first seed for variants. Some are caught by few seeds, and not by any hundreds."""
    return options.first if options.first < NEW_SEEDS else 1


def _for_every_seed(kind: Callable[[], Plan]) -> PlanMaker:
    """Returns a maker of plans that does not look at the seed."""
    return lambda seed: kind()


def show_run(make: PlanMaker, seed: int) -> int:
    """Prints the trace of one run; returns the exit status."""
    result = simulate(make, seed)
    print("\n".join(result.trace.lines()))
    print(f"\nseed {seed}: {len(result.violations)} violations, {result.grants} grants")
    for violation in result.violations:
        print(f"  {violation}")
    return 1 if result.violations else 0


def run_seeds(make: PlanMaker, options: argparse.Namespace) -> bool:
    """Runs all seeds and prints the totals; returns whether no run failed."""
    started = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    if options.jobs > 1:
        chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
        context = get_context("spawn")
        with ProcessPoolExecutor(options.jobs, context) as pool:
            totals = Totals()
            for part in pool.map(simulate_many, [make] * len(chunks), chunks):
                totals = totals.plus(part)
    else:
        totals = simulate_many(make, seeds)
    took = time.monotonic() - started
    grants, stale, steps, failed = totals
    kind = "calm runs" if options.calm else "runs"
    print(
        f"{options.backend}: {options.seeds} {kind}, {grants} grants, {stale} stale writes refused by "
        f"the fence, {len(failed)} runs failed; {options.seeds / took:.0f} runs/s, {steps} steps"
    )
    if failed:
        first = failed[0][0]
        calm = " --calm" if options.calm else ""
        print("\n".join(simulate(make, first).trace.lines()))
        for seed, violation in failed[:SHOWN]:
            print(f"seed {seed}: {violation}")
        print(
            f"failed: {', '.join(str(seed) for seed, _ in failed)}; again with\n"
            f"  python -m holdfast.sim --backend {options.backend}{calm} --seed {first}"
        )
    return not failed


def check_variant(name: str, make: PlanMaker, first: int) -> bool:
    """Runs a variant until it is caught; returns whether it was.

    A checker that has never caught anything proves nothing. A run that does not end is no catch: the
    variant itself may be out of order, and its store of no use.
    """
    for seed in range(first, first + MOST_FOR_A_VARIANT):
        found = simulate(make, seed).violations
        violations = [text for text in found if not text.startswith(UNENDED)]
        if violations and violations[0].startswith(FAILURE):
            print(f"  known to be bad, but seed {seed} failed by itself: {name}: {violations[0]}")
            return False
        if violations:
            print(f"  known to be bad, caught by seed {seed}: {name}: {violations[0]}")
            return True
        collect_garbage(seed)
    print(f"  known to be bad, and NOT caught in {MOST_FOR_A_VARIANT} runs: {name}")
    return False


if __name__ == "__main__":
    sys.exit(main())
