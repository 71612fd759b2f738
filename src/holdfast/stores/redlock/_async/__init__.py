"""The adapter from the engine's contract to Redlock, as it is written: for asyncio."""
