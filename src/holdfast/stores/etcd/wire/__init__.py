"""Connections to an etcd cluster: `aio` and `threads` have the same names for the two worlds."""
