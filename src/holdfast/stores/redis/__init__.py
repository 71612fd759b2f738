"""`redis://` and its relatives: one server, a primary that sentinels watch, a cluster.

`wire` has the same `Wire` for the two worlds: in asyncio one connection on which the commands of all
tasks are pipelined, in blocking code one connection for each thread that is calling. Everything else
is written once.
"""
