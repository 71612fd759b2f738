"""`/v1/wakeups`: tells a client that waits without a held request which of its owners should ask."""

from __future__ import annotations

from .answers import Send, dumps
from .authority import READ
from .call import Call
from .streams import Stream, event


async def wakeups(call: Call, send: Send) -> None:
    """Sends one event for each ticket of the session that is told something."""
    store = call.store
    await store.session()  # a store that does not answer is told before the stream begins
    may, namespace = call.service.authority.may, store.namespace
    async with Stream(call, send) as stream:
        listener = store.bells.listen(call.place("", call.query["session"]), stream.signal)
        try:
            await stream.write(event("ready", "{}"))
            while await stream.wait():
                pending, listener.pending = listener.pending, []
                told = [
                    event("wakeup", dumps(wakeup))
                    for wakeup in pending
                    if "name" not in wakeup or may(call.caller, READ, namespace, wakeup["name"])
                ]
                if listener.overflowed:
                    listener.overflowed = False
                    told.append(event("reset", "{}"))
                if told:
                    await stream.write(b"".join(told))
        finally:
            store.bells.leave(listener)
