"""Connections to all nodes of Redlock: `aio` and `threads` have the same names for the two worlds."""
