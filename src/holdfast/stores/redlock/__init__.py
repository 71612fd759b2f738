"""Several independent Redis nodes as one store: who they are, how they stand, how votes are counted.

What differs between asyncio and threads is in `aio` and `threads`; the rest knows neither. The
algorithm and the argument for it are in docs/redlock.md.
"""
