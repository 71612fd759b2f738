"""The licences of what is installed along with Holdfast, by the packages' own metadata."""

from __future__ import annotations

import re

ALLOWED = {
    "0BSD": "as the owner says",
    "Apache-2.0": "our own",
    "BSD-2-Clause": "permissive",
    "BSD-3-Clause": "permissive",
    "BSD": "permissive",
    "ISC": "permissive",
    "LGPL-3.0": "psycopg: used as a library, unchanged, and chosen by its extra only",
    "MIT": "permissive",
    "MPL-2.0": "certifi and the like: used unchanged",
    "PSF-2.0": "that of Python",
    "Unlicense": "public domain",
    "ZPL-2.1": "permissive: Zope's",
}
"""The licences that a dependency may have, and why."""

NAMES = (
    (r"apache", "Apache-2.0"),
    (r"lgpl|lesser general public", "LGPL-3.0"),
    (r"mozilla|mpl", "MPL-2.0"),
    (r"\b(a?gpl|gnu (affero )?general public)", "GPL"),
    (r"3-clause|bsd-3|new bsd", "BSD-3-Clause"),
    (r"2-clause|bsd-2|simplified bsd", "BSD-2-Clause"),
    (r"0bsd", "0BSD"),
    (r"\bbsd\b", "BSD"),
    (r"\bmit\b|expat", "MIT"),
    (r"\bisc\b", "ISC"),
    (r"python software foundation|psf", "PSF-2.0"),
    (r"unlicense", "Unlicense"),
    (r"zope|zpl", "ZPL-2.1"),
)
"""How licences are written in metadata. Only the first line counts: some put the whole text there."""

LIST = """
import json
from importlib.metadata import distributions
found = {}
for one in distributions():
    data = one.metadata
    classes = [c for c in data.get_all("Classifier", []) if c.startswith("License ::")]
    words = [data.get("License-Expression"), *classes, data.get("License")]
    found[data["Name"]] = [word for word in words if word]
print(json.dumps(found))
"""
"""The program that prints what the packages of an environment say of themselves."""


def licence_of(words: list[str]) -> str:
    """Returns the short name of the licence that a package's metadata names; empty if it names none.

    Of several that stand side by side the first that is allowed counts: `MIT OR Apache-2.0`. Where all
    of them hold at once (`AND`), all have to be allowed.
    """
    for word in words:
        line = word.strip().splitlines()[0][:120]
        parts = re.split(r"\s+AND\s+", line)
        found = [_one_of(part) for part in parts]
        bad = [name for name in found if name not in ALLOWED]
        if bad and any(bad):
            return next(name for name in bad if name)
        if not bad:
            return " AND ".join(found)
    return ""


def _one_of(words: str) -> str:
    found = [
        name
        for part in re.split(r"\s+OR\s+", words)
        for pattern, name in NAMES
        if re.search(pattern, part.lower())
    ]
    return next((name for name in found if name in ALLOWED), found[0] if found else "")


def objections(packages: dict[str, list[str]]) -> list[str]:
    """Returns a sentence for each package whose licence is not allowed, or not named."""
    said = []
    for name, words in sorted(packages.items()):
        licence = licence_of(words)
        if not licence:
            said.append(f"{name} names no licence that we know: {words}")
        elif any(one not in ALLOWED for one in licence.split(" AND ")):
            said.append(f"{name} has the licence {licence}, which is not allowed")
    return said
