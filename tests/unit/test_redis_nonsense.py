"""Something that is no Redis answers at the other end."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import aio as holdfast


async def test_an_answer_that_is_none_ends_the_connection() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        try:
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()
            done.set()

    done = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    complaints: list[object] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with server:
        with pytest.raises(holdfast.BackendUnavailable):
            await holdfast.connect(f"redis://127.0.0.1:{port}").lock("x").acquire()
        await done.wait()
    await asyncio.sleep(0)
    assert complaints == []
