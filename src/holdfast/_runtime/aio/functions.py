"""The functions that a lock can be put around."""

from __future__ import annotations

from ...errors import ConfigError


def check_function(function: object) -> None:
    """Refuses what cannot be called under a lock here: only `async def` functions can."""
    import inspect  # slow to import, and seldom needed

    from ...decorated import unwrapped

    plain = unwrapped(function)
    if inspect.iscoroutinefunction(plain):
        return
    raise ConfigError(
        f"{function!r:.80} is no `async def` function, so a lock of holdfast.aio cannot be put around "
        "it: the lock has to be awaited; use the locks of holdfast.connect() for a plain function"
    )
