"""Errors of the servers that are started here."""

from __future__ import annotations


class ServerError(Exception):
    """Raised when a server cannot be started, asked or upset; says what is missing, or what it said."""
