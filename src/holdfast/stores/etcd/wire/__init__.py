"""The wire to an etcd cluster: `aio` and `threads` have the same names for the two worlds.

The rest of the store uses `Wire`, `Stream`, `Failure` and `messages`, and nothing of `http2` below.
"""
