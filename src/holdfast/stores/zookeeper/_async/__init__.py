"""The adapter from the engine's contract to ZooKeeper, for asyncio."""
