"""An application of FastAPI in a process of its own: a counter behind a lock, and a leader."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI

from holdfast.aio import Lease, Term
from holdfast.contrib.fastapi import lifespan, lock

URL, FOLDER = sys.argv[1], Path(sys.argv[2])


async def lead(term: Term) -> None:
    print("leading", os.getpid(), term.token)
    await asyncio.Event().wait()


app = FastAPI(lifespan=lifespan(URL, leads={"scheduler": lead}))


@app.post("/counters/{number:int}")
async def count(
    number: int, lease: Annotated[Lease, Depends(lock("counter:{number}", timeout=100.0))]
) -> dict[str, int]:
    file = FOLDER / str(number)
    before = int(file.read_text()) if file.exists() else 0
    await asyncio.sleep(0.005)  # here another one would read the same
    file.write_text(str(before + 1))
    return {"count": before + 1, "token": lease.token}


class Server(uvicorn.Server):
    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        print("port", self.servers[0].sockets[0].getsockname()[1])


Server(uvicorn.Config(app, port=0, log_level="error")).run()
