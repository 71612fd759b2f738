"""The adapter from the engine's contract to the embedded store, as it is written: for asyncio."""
