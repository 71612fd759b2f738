"""An API limited by a semaphore: never more than its permits, and a dead caller's permit comes back."""

from __future__ import annotations

from pathlib import Path

from recipes.players import cast, until, waited_for


def test_the_permit_of_a_caller_that_was_killed_comes_back(tmp_path: Path) -> None:
    with cast(tmp_path, "api_limit") as callers:
        words = ("--calls", "1", "--permits", "2")
        crowd = [callers.player(*words, stop_at="call_api") for _ in range(5)]
        waited_for(callers.url, "partner-api", 3)
        until(lambda: sum(one.stops for one in crowd) == 2, "two calls")
        first, second = (one for one in crowd if one.stops)
        first.kill()
        waited_for(callers.url, "partner-api", 2)
        until(lambda: sum(one.stops for one in crowd) == 3, "a third call")
        second.go()
        second.succeeded()
        waited_for(callers.url, "partner-api", 1)
        until(lambda: sum(one.stops for one in crowd) == 4, "a fourth call")
        others = [one for one in crowd if one not in (first, second)]
        for one in others:
            one.go_through()
        for one in others:
            one.succeeded()
        assert sum(one.stops for one in crowd) == 5
