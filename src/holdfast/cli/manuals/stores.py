"""The manual of `holdfast stores`."""

from . import JSON, Manual

MANUAL = Manual(
    synopsis="stores [STORE…] [--markdown | --json]",
    text="""\
Compares the stores: what each promises, and where its promises end. It is the data by which Holdfast
itself refuses what a store cannot promise. Nothing is connected to.
""",
    groups=(("Options", {"--markdown": "write tables of Markdown, as in the docs", **JSON}),),
    examples={
        "holdfast stores": "all of them",
        "holdfast stores redis redlock": "two of them",
        "holdfast stores --json | jq -r '.[] | select(.fair) | .store'": "those that serve waiters "
        "in their order",
    },
    statuses={},
    uses_store=False,
)
