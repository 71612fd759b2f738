"""python -m release_check [--quick] [EXTRA...]: build the package, and see if it is fit to be released.

Builds sdist and wheel into dist/ and looks into both. Builds the wheel out of the sdist once more: it
has to be the same. Then installs the wheel with each extra on each Python that is here, runs it, and
checks the licences of what came along; and once more with the lowest versions that the extra allows.
With --quick: the core alone, on this Python, into a folder that is thrown away.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from .contents import ROOT, PackageError, check_sdist, check_wheel
from .environments import NAME, extras, lowest, pythons, try_out
from .licences import licence_of


def build(sources: Path, target: Path, *kinds: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), *kinds]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PackageError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")


def made(target: Path) -> tuple[Path, Path]:
    """Builds the package into `target`, looks into it, and returns the wheel and the sdist."""
    for old in target.glob("holdfast*"):
        old.unlink()
    build(ROOT, target, "--sdist", "--wheel")
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    return wheel, sdist


def check_rebuilt(wheel: Path, sdist: Path) -> None:
    """Raises unless the wheel that the sdist makes is the same, byte by byte."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (sources,) = folder.iterdir()
        build(sources, folder / "again", "--wheel")
        (again,) = (folder / "again").glob("*.whl")
        if again.read_bytes() != wheel.read_bytes():
            raise PackageError(
                f"the wheel that {sdist.name} makes is another one than {wheel.name}"
            )


def check_lowest(wheel: Path, python: str, chosen: list[str]) -> None:
    """Raises unless each extra works with the lowest versions that it allows.

    On the oldest Python that is here: a newer one may be newer than those versions.
    """
    for extra in filter(None, chosen):
        pins = lowest(extra)
        try_out(wheel, python, extra, pins)
        print(f"{NAME}[{extra}] works with {', '.join(pins)}", flush=True)


def quick() -> None:
    with TemporaryDirectory() as folder:
        wheel, _ = made(Path(folder))
        try_out(wheel, sys.executable)


def whole(chosen: list[str]) -> None:
    wheel, sdist = made(ROOT / "dist")
    print(f"built {wheel.name} ({wheel.stat().st_size // 1024} kB) and {sdist.name}", flush=True)
    check_rebuilt(wheel, sdist)
    licences: dict[str, str] = {}
    found = pythons()
    for version, python in found.items():
        for extra in chosen or ["", *extras()]:
            if python:
                packages = try_out(wheel, python, extra)
                licences |= {name: licence_of(words) for name, words in packages.items()}
                print(f"Python {version}: {NAME}{extra and f'[{extra}]'} works", flush=True)
    check_lowest(wheel, next(filter(None, found.values())), chosen or extras())
    for name, licence in sorted(licences.items(), key=lambda item: item[0].lower()):
        print(f"  {name:32} {licence}")
    missing = [version for version, python in found.items() if not python]
    if missing:
        print(f"not tried, because it is not here: Python {', '.join(missing)}")


def main(words: list[str]) -> int:
    try:
        if "--quick" in words:
            quick()
        else:
            whole(words)
    except PackageError as error:
        print(f"not fit to be released: {error}", file=sys.stderr)
        return 1
    print("the package is fit to be released")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
