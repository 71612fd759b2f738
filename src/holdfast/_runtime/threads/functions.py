"""The functions that a lock can be put around."""

from __future__ import annotations

from ...errors import ConfigError


def check_function(function: object) -> None:
    """Refuses what cannot be called under a lock here: `async def` functions cannot."""
    import inspect  # slow to import, and seldom needed

    from ...decorated import unwrapped

    if inspect.iscoroutinefunction(unwrapped(function)):
        raise ConfigError(
            f"{function!r:.80} is `async def`, so this lock would be released before its body runs; "
            "use the locks of holdfast.aio.connect() for it"
        )
