"""`/v1/events`: what happens to locks, told to all who listen.

A listener that has missed something is told so, and dropped: it reads too slowly to keep up with the
ring of its watcher, or the watching was interrupted.
Whoever comes back with an id that is not in the ring any more, or is of another process, gets one
event `reset` and loads the list again.
"""

from __future__ import annotations

from .answers import Answer, Send, dumps
from .batches import narrowed
from .call import Call
from .streams import Stream, event

LOST = "events were lost: you read too slowly, or the service could not watch for a while"


async def events(call: Call, send: Send) -> None:
    """Sends what happens to the locks whose names begin with the prefix."""
    store = call.store
    watcher = call.service.watcher(store)
    visible = call.service.authority.prefixes(call.caller, store.namespace)
    prefixes = tuple(narrowed(call.query["prefix"], visible))
    cursor = call.query["cursor"] or _last_id(call)
    await store.session()  # a store that does not answer is told before the stream begins
    async with Stream(call, send) as stream:
        watcher.join(stream)
        try:
            while not watcher.looked:  # what happens from here on is told
                if not await stream.wait():
                    return
            position = watcher.position(cursor) if cursor else None
            if position is None:
                position = watcher.last
                kind = "reset" if cursor else "ready"
                begins = watcher.beginning(kind, position, prefixes, call.query["list"])
                await stream.write_in_time(begins)
            looks = watcher.looks
            while not stream.ended:
                piece = watcher.piece(position, prefixes, call.query["together"])
                if piece is None:
                    detail = dumps({"detail": LOST})
                    await stream.write(event("dropped", detail))
                    return
                data, reached = piece
                if data:
                    await stream.write_in_time([data])
                elif reached == position:
                    if call.query["looks"] and watcher.looks != looks:
                        looks = watcher.looks
                        await stream.write(event("look", dumps(watcher.look_view())))
                    if not await stream.wait():
                        return
                position = reached
        except TimeoutError:
            return  # it reads nothing at all
        finally:
            watcher.leave(stream)


def _last_id(call: Call) -> str:
    """Returns the id that an EventSource sends when it comes back; empty if there is none."""
    for name, value in call.scope["headers"]:
        if name == b"last-event-id":
            text = value.decode("latin-1")
            return text if len(text) <= 64 else ""
    return ""


async def history(call: Call) -> Answer:
    """Tells what is still known of what happened to a lock."""
    await call.store.session()
    return Answer(200, call.service.watcher(call.store).history(call.name))
