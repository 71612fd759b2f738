"""ZooKeeper: client sessions, and the queue of ephemeral znodes in which each attempt has one.

Nothing here knows asyncio or the engine, and nothing blocks: a callback is given along with each
request, and runs in the thread of the connection. An attempt's life is told by `creation`, `queue`,
`grants` and `deletion`, in this order.
"""
