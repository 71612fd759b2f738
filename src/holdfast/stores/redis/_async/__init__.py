"""The adapter from the engine's contract to Redis, as it is written: for asyncio."""
