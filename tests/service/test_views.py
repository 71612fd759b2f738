"""Views: a grant is written as it is shown."""

from __future__ import annotations

import json

import pytest

from holdfast.service.views import grant_text, grant_view
from holdfast.service.waiter import Grant


@pytest.mark.parametrize("name", ["job", 'quote " and \\ and /', "Größe ☃ \U0001f512", "{}%s"])
@pytest.mark.parametrize(
    "grant",
    [
        Grant(1, 30.0, 1000.0),
        Grant(2**53 + 1, 1e-7, 1000.1),
        Grant(7, 366 * 86400.0, 999.9),
        Grant(7, 30.0, 1000.0, 3),
        Grant(7, 30.0, 1000.0, 0, True),
        Grant(7, 30.0, 1000.0, None, True),
    ],
)
def test_the_text_of_a_grant_says_what_its_view_says(name: str, grant: Grant) -> None:
    told = name, "owner-1", grant, 1000.0, 1000.3
    text = grant_text(*told)
    assert text.isascii()
    assert json.loads(text) == grant_view(*told)
