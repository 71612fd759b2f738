"""The adapters of asyncio, from which those of blocking code are generated."""
