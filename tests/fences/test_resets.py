"""A reset on every fence: what is no number to begin at is refused, and nothing is forgotten by it."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from fences.sites import Site
from holdfast.fences import MemoryFence


def test_a_reset_to_nonsense_is_refused(site: Site) -> None:
    site.write("x", "a", 34)
    for to in (-1, 2**63, True, "7", None, 1.5):
        with pytest.raises(holdfast.ConfigError, match="a reset is to a number"):
            site.reset("x", to=to)  # type: ignore[arg-type]
    assert site.highest("x") == 34
    with pytest.raises(holdfast.StaleToken):
        site.write("x", "late", 33)


@pytest.mark.parametrize("by", ["", None, 7, "a\nb", "x" * 257])
def test_who_resets_is_named(by: Any) -> None:
    fence = MemoryFence()
    fence.guard("x", 34)
    with pytest.raises(holdfast.ConfigError, match="who resets"):
        fence.reset("x", by=by)
    assert fence.highest("x") == 34
