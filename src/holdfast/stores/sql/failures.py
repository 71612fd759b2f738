"""How a call to a database fails, where that is not the end of it."""

from __future__ import annotations


class Lost(Exception):
    """Raised when a connection broke, or did not answer in time: the step may have happened."""


class Late(Lost):
    """Raised when there was no answer in time."""


class Again(Exception):
    """Raised when the database gave a step up, so that nothing happened: it is to be sent again."""


class Unready(Again):
    """Raised when the database takes no calls at present, and the connection is of no more use."""
