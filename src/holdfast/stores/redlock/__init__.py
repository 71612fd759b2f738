"""Several independent Redis nodes as one store.

The package knows which nodes there are (`address`), which of them vote (`membership`), and how their
votes are counted (`votes`). The connections of asyncio and of threads are in `wire`. The algorithm and
the argument for its safety are in docs/redlock.md.
"""
