"""python -m docs_site [TARGET]: build the site into TARGET, build/docs unless it is given.

Any warning is an error: a link that leads nowhere, a page that is in no list, a docstring that
cannot be read.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from .access import mend_all
from .staging import ROOT, Stage


def main(words: list[str]) -> int:
    target = Path(words[0] if words else ROOT / "build" / "docs")
    sources = target.parent / f"{target.name}-sources"
    if Stage(sources).fill() and (target / ".buildinfo").exists():
        shutil.rmtree(target)  # all pages show the navigation
    settings = ["-c", str(Path(__file__).parent), "-W", "--keep-going", "-q", "-j", "auto"]
    trees = ["-d", str(target.parent / f"{target.name}-trees")]
    status: int = sphinx(["-b", "html", *settings, *trees, str(sources), str(target)])
    if status == 0:
        mend_all(target)
        print(f"the site is in {target}/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
