"""A process that stood still does not blame the database, which has answered meanwhile."""

from __future__ import annotations

import select
from typing import Any

from _async.conformance.test_contract import bench
from _async.sql_scenes import each_database

pytestmark = each_database


async def test_a_step_that_begins_when_its_time_is_over_is_made_all_the_same(url: str) -> None:
    async with bench(url) as store:
        backend: Any = store.backend
        state = await backend.inspect("x", backend.clock.now() - 60.0)
        assert state.holders == ()


async def test_an_answer_that_has_come_is_read_though_the_time_is_over(url: str) -> None:
    async with bench(url) as store:
        backend: Any = store.backend
        await backend.inspect("x", store.deadline())
        connection = backend._store._steps._idle.pop()
        over = backend.clock.now() - 60.0
        driver = connection._connection
        poll = select.poll()
        try:
            if url.startswith("postgres"):
                driver.send_query(b"SELECT 1")
                poll.register(driver.socket, select.POLLIN)
                assert poll.poll(10_000)
                (result,) = connection._results(driver, over)
                assert result.get_value(0, 0) == b"1"
            else:
                connection._deadline.at = store.deadline()
                driver._execute_command(3, "SELECT 1")  # a query
                poll.register(driver._sock.fileno(), select.POLLIN)
                assert poll.poll(10_000)
                connection._deadline.at = over
                driver._read_query_result()
                assert driver._result.rows[0][0] in (1, "1")
        finally:
            connection.close()
