"""The adapter from the engine's contract to etcd, as it is written: for asyncio."""
