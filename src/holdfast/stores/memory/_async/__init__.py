"""The adapter from the engine's contract to the memory store, as it is written: for asyncio."""
