"""`holdfast chaos --list` prints what can be broken on this machine, and how."""

from __future__ import annotations

from collections.abc import Iterator

from ...chaos.campaign import faults_of, stores_for
from ...chaos.faults import FAULTS
from ...chaos.labs import LABS, lab_class
from ...chaos.peers import KNOWN_BAD, PEERS, missing_for
from ...chaos.setup import OURS
from ...chaos.tiers import stores as startable
from ...chaos.tiers import tiers
from ..drawing import BOLD, DIM, Pen, visible


def listing(pen: Pen) -> Iterator[str]:
    """Yields what can be broken here, and how."""
    yield pen.paint("What can be done here", BOLD)
    for tier in tiers():
        mark = "yes" if tier.available else "no "
        yield f"  {mark}  {tier.name:<12}{visible(tier.why)}"
    yield ""
    yield pen.paint("Stores", BOLD)
    missing = startable()
    wide = max(map(len, (*LABS, *FAULTS))) + 2
    for name in LABS:
        title = lab_class(name).title
        why = missing[name]
        yield f"  {name:<{wide}}{title if why is None else f'{title}: {visible(why)}'}"
        if why is None:
            yield pen.paint(f"  {'':<{wide}}{', '.join(faults_of(name))}", DIM)
    yield ""
    yield pen.paint("Faults", BOLD)
    for fault in FAULTS.values():
        yield f"  {fault.name:<{wide}}{fault.text}"
    yield ""
    yield pen.paint("Libraries", BOLD)
    for library in (OURS, *PEERS):
        known = " (known to be bad)" if library in KNOWN_BAD else ""
        why = missing_for(library)
        lack = "" if why is None else f": {visible(why)}"
        yield f"  {library:<{wide}}{', '.join(stores_for(library))}{known}{lack}"
