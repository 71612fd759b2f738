"""The adapter from the engine's contract to ZooKeeper, as it is written: for asyncio."""
