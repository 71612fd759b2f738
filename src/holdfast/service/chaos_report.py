"""`/v1/chaos-report`: a report of `holdfast chaos`, to be opened from the page."""

from __future__ import annotations

import asyncio
import os
import stat

from .about import refuse_partial_view
from .answers import Answer
from .call import Call
from .problems import Problem

POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The policy of a report: it runs its own scripts, in an origin of its own, and can ask us nothing."""


MOST = 64 << 20
"""Bytes that a report may have; those of `holdfast chaos` have some megabytes."""


def _read(path: str) -> bytes:
    """Returns what is in the file; raises `OSError` if it is none, for which one might wait."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST:
            raise OSError("not a file, or too large")
        return file.read(MOST)


async def chaos_report(call: Call) -> Answer:
    """Sends the report as it is now: a page of HTML that is whole by itself."""
    refuse_partial_view(call)
    path = call.service.settings.chaos_report
    if path is None:
        raise Problem("not-found", "the service was started without --chaos-report")
    try:
        report = await asyncio.to_thread(_read, path)
    except OSError:
        raise Problem("not-found", "the chaos report cannot be read any more") from None
    headers = ((b"content-security-policy", POLICY.encode()),)
    return Answer(200, report, headers, b"text/html; charset=utf-8")
