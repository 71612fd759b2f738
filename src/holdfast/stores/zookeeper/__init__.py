"""ZooKeeper: sessions, the queue of ephemeral nodes, and what becomes of each node.

Nothing here knows asyncio or the engine, and nothing blocks: requests are sent with what is to be done
when they are answered, and that runs in the thread of the connection.
"""
