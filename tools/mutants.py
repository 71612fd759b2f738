"""Breaks safety rules on purpose, one at a time, and sees that a test notices.

    python tools/mutants.py                    all that tests/mutants/*.toml lists
    python tools/mutants.py --quick            those of the files that say quick = true
    python tools/mutants.py engine redis-…     those of a file, or whose name starts so
    python tools/mutants.py --check            break nothing; see that every text is there, once

A mutant is a table `[[mutant]]` with

    name        a few words with hyphens
    file        the file to change; of the asyncio code and its twin, the asyncio code
    old, new    a text that stands in it exactly once, and what is put in its place
    tests       the tests that notice, as pytest takes them; one of them has to fail
    match       of these, only those that pytest's -k finds by this
    equivalent  in place of tests: why the change breaks nothing, so that no test could notice

Each is applied to a copy of the tree; the tests run there. The tests of all of them are first run on a
copy that is whole, since a test that fails anyway notices nothing.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
LISTS = ROOT / "tests" / "mutants"
COPIED = ("model", "pyproject.toml", "src", "tests", "tools")
LIMIT = 300.0
"""Seconds for the tests of one mutant. A mutant that makes them hang has been noticed, too."""
PASSED, FAILED = 0, 1


class Mutant(NamedTuple):
    """A rule broken on purpose."""

    family: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    match: str
    equivalent: str
    quick: bool

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"


def listed(lists: Path = LISTS) -> list[Mutant]:
    """Returns all mutants of the lists."""
    mutants = []
    for path in sorted(lists.glob("*.toml")):
        contents = tomllib.loads(path.read_text())
        for entry in contents["mutant"]:
            mutants.append(_mutant(path.stem, entry, bool(contents.get("quick", False))))
    names = [mutant.name for mutant in mutants]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SystemExit(f"mutants of the same name: {', '.join(sorted(twice))}")
    return mutants


def _mutant(family: str, entry: dict[str, Any], quick: bool) -> Mutant:
    known = {"name", "file", "old", "new", "tests", "match", "equivalent"}
    if not known >= entry.keys() or not {"name", "file", "old", "new"} <= entry.keys():
        raise SystemExit(f"{family}: a mutant has {', '.join(sorted(known))}: {entry}")
    tests, equivalent = tuple(entry.get("tests", ())), entry.get("equivalent", "")
    if bool(tests) == bool(equivalent):
        raise SystemExit(f"{family}: {entry['name']} has either tests or a word why there are none")
    return Mutant(
        family,
        entry["name"],
        entry["file"],
        entry["old"],
        entry["new"],
        tests,
        entry.get("match", ""),
        equivalent,
        quick,
    )


def misplaced(mutants: Iterable[Mutant], root: Path = ROOT) -> list[str]:
    """Returns a line for each mutant that cannot be applied, or whose tests are not there."""
    wrong = []
    for mutant in mutants:
        path = root / mutant.file
        count = path.read_text().count(mutant.old) if path.exists() else 0
        if count != 1:
            wrong.append(f"{mutant}: its old text is in {mutant.file} {count} times")
        if mutant.old == mutant.new:
            wrong.append(f"{mutant}: it changes nothing")
        for test in mutant.tests:
            file, *inside = test.split("::")
            if not (root / file).exists():
                wrong.append(f"{mutant}: there is no {file}")
            elif inside and f"def {inside[0].partition('[')[0]}(" not in (root / file).read_text():
                wrong.append(f"{mutant}: there is no test {test}")
    return wrong


class Tree:
    """A copy of the tree, in which one mutant at a time is applied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, folder / name, ignore=ignore)
            else:
                shutil.copy(source, folder / name)

    def run(self, tests: Iterable[str], match: str) -> tuple[int, str]:
        """Returns pytest's exit status, `FAILED` if it took too long, and what it printed."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._folder / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        command += ["-k", match] if match else []
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return FAILED, "the tests hung"
        return process.returncode, output

    def run_broken(self, mutant: Mutant) -> tuple[int, str]:
        path = self._folder / mutant.file
        whole = path.read_text()
        path.write_text(whole.replace(mutant.old, mutant.new))
        asyncio_only = all("/_async/" in test for test in mutant.tests)
        regenerate = "/_async/" in mutant.file and not asyncio_only
        try:
            if regenerate:
                self._regenerate()
            return self.run(mutant.tests, mutant.match)
        finally:
            path.write_text(whole)
            if regenerate:
                self._regenerate()

    def _regenerate(self) -> None:
        command = [sys.executable, "tools/unasync.py"]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True)


def work(mutants: list[Mutant], jobs: int, report: Callable[[Mutant, int, str], None]) -> None:
    """Runs the mutants on `jobs` copies of the tree."""
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)

    def run_some() -> None:
        with tempfile.TemporaryDirectory(prefix="hf-mutants-") as folder:
            tree = Tree(Path(folder))
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                report(mutant, *tree.run_broken(mutant))

    threads = [threading.Thread(target=run_some) for _ in range(min(jobs, len(mutants)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("which", nargs="*", help="a file of tests/mutants, or the start of a name")
    parser.add_argument("--check", action="store_true", help="only see that all can be applied")
    parser.add_argument("--quick", action="store_true", help="only those that need no servers")
    parser.add_argument("--some", type=int, help="only so many, drawn anew each time")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    everything = listed()
    wrong = misplaced(everything)
    for line in wrong:
        print(line)
    if wrong or options.check:
        return 1 if wrong else 0
    chosen = [
        mutant
        for mutant in everything
        if mutant.tests
        and (not options.quick or mutant.quick)
        and (
            not options.which
            or any(mutant.family == one or mutant.name.startswith(one) for one in options.which)
        )
    ]
    if options.some is not None:
        chosen = random.sample(chosen, min(options.some, len(chosen)))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hf-mutants-") as folder:
        tree = Tree(Path(folder))
        for match in sorted({mutant.match for mutant in chosen}):
            tests = sorted({test for one in chosen if one.match == match for test in one.tests})
            status, output = tree.run(tests, match)
            if status != PASSED:
                print(output[-5000:])
                print("the tests do not pass on the tree as it is")
                return 1
    missed: list[Mutant] = []

    def report(mutant: Mutant, status: int, output: str) -> None:
        noticed = status == FAILED
        print(f"{'noticed' if noticed else 'MISSED '}  {mutant}", flush=True)
        if not noticed:
            missed.append(mutant)
            if status != PASSED:
                print(output[-3000:])

    work(chosen, options.jobs, report)
    argued = sum(1 for mutant in everything if mutant.equivalent)
    print(
        f"{len(chosen)} mutants, {len(missed)} missed, in {time.monotonic() - began:.0f} s; "
        f"{argued} more are argued to break nothing"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
