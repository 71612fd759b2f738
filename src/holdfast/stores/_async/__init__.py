"""The contract between the engine and a store, as it is written: for asyncio."""
