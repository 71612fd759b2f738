"""A service at its limit of descriptors: what needs none goes on, and the rest is refused for now."""

from __future__ import annotations

from service.running import Process


def test_a_service_that_may_open_nothing_more_says_so(redis_url: str) -> None:
    """What is asked for the first time has to be imported, which opens files; and may connect."""
    process = Process("--url", redis_url, "--port", "0")
    try:
        api = process.api()
        assert api.get("/v1/locks/x").status_code == 200

        def refused_for_now() -> list[tuple[int, str]]:
            fence, doctor = api.post("/v1/fences/r/check", {"token": 3}), api.get("/v1/doctor")
            return [(one.status_code, one.json().get("type", "")) for one in (fence, doctor)]

        with process.nothing_to_open():
            assert refused_for_now() == [(503, "/problems/unavailable")] * 2
            owner = api.acquire("x")["owner"]
            assert api.lock("x", "release", owner=owner).status_code == 200
        assert refused_for_now() == [(200, "")] * 2
        process.process.terminate()
        assert process.end() == (0, "", "")
    finally:
        process.close()
