"""The list of mutants can be applied to the tree as it is: `make mutants` runs it."""

from __future__ import annotations

import mutants


def test_every_mutant_can_be_applied() -> None:
    assert mutants.misplaced(mutants.listed()) == []
