"""Connections to one Redis server: `aio` and `threads` have the same names for the two worlds."""
