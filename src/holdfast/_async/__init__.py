"""The engine, as it is written: for asyncio. Its blocking twin `_sync` is generated from it."""
