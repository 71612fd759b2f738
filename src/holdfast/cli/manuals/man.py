"""The manual of `holdfast man`."""

from . import Manual

MANUAL = Manual(
    synopsis="man",
    text="""\
Prints the manual page of all commands. Where Holdfast is installed by pip into a folder whose manuals
man(1) finds, `man holdfast` shows it, too.
""",
    groups=(),
    examples={"holdfast man | man -l -": "reads it"},
    statuses={},
    uses_store=False,
)
