"""How `RedisFence` forgets: a look at all marks, then script by script those that are old.

The first pass finds out which locks still have a mark, since they may need floors of their own before
the floors of their realm are raised. In a cluster a lock's marks may be in other slots than the floors
that count for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import floors, rules
from .floors import Floor
from .redis_keys import FLOORS, RESETS, SUFFIX
from .redis_scripts import read_script, script_of
from .redis_values import Request, Steps, parse_floor, parse_mark, text_of
from .rules import Mark

if TYPE_CHECKING:
    from .redis import RedisFence

BATCH = 500
LOOK = script_of(
    "local now = redis.call('TIME')\n"
    "return {now[1] * 1000 + math.floor(now[2] / 1000), redis.call('MGET', unpack(KEYS))}"
)


def prune(fence: RedisFence, older_than: float) -> Steps[int]:
    milliseconds = round(older_than * 1000)
    old: dict[str, dict[str, Mark]] = {}
    """The marks to be forgotten, by their keys, for each key of floors."""
    holders: dict[str, Mark] = {}
    for node in (yield from fence.nodes()):
        for keys in (yield from _keys(node, f"*{SUFFIX}")):
            for those, now, values in (yield from _look(fence, keys)):
                for key, value in zip(those, values, strict=True):
                    if value is None:
                        continue
                    mark = parse_mark(value)
                    shown = int(text_of(value).split(" ", 2)[1])
                    if shown <= now - milliseconds and floors.prunable(mark):
                        old.setdefault(fence.floors_of(key), {})[key] = mark
                    elif mark.lock:
                        highest = floors.highest((mark, holders.get(mark.lock, Mark())))
                        holders[mark.lock] = Mark(highest.highest, mark.lock, highest.reader)
    forgotten = 0
    for where, marks in old.items():
        forgotten += yield from _forget(where, marks, holders, milliseconds)
    return forgotten


def _keys(node: Any, pattern: str) -> Steps[list[list[str]]]:
    """Returns all keys of a server that match, as they came."""
    found, cursor = [], 0
    while True:
        command = ("SCAN", cursor, "MATCH", pattern, "COUNT", BATCH)
        told, keys = yield Request(command, node=node)
        # In a cluster: by the name of the node.
        (cursor,) = map(int, told.values() if isinstance(told, dict) else (told,))
        if keys:
            found.append([text_of(key) for key in keys])
        if cursor == 0:
            return found


def _look(
    fence: RedisFence, keys: Sequence[str]
) -> Steps[list[tuple[Sequence[str], int, list[Any]]]]:
    """Returns keys of marks, the server's time in ms, and their values, for each slot."""
    by_floors: dict[str, list[str]] = {}
    for key in keys:
        by_floors.setdefault(fence.floors_of(key), []).append(key)
    looks: list[tuple[Sequence[str], int, list[Any]]] = []
    for those in by_floors.values():
        now, values = yield Request(("EVALSHA", LOOK.sha, len(those), *those), LOOK.text)
        looks.append((those, int(now), values))
    return looks


def _forget(
    where: str, marks: dict[str, Mark], holders: dict[str, Mark], milliseconds: int
) -> Steps[int]:
    highest: dict[str, int] = {}
    for mark in marks.values():
        realm = floors.realm(mark.lock)
        highest[realm] = max(highest.get(realm, 0), mark.highest, mark.reader)
    own = [
        lock
        for lock, mark in holders.items()
        if max(mark.highest, mark.reader)
        < max(highest.get(floors.realm(lock), 0), highest.get("", 0))
    ]
    script = script_of(read_script("prune.lua"))
    forgotten = 0
    names = list(marks)
    for start in range(0, len(names), BATCH):
        keys = names[start : start + BATCH]
        command = ("EVALSHA", script.sha, 1 + len(keys), where, *keys, milliseconds, rules.latest())
        forgotten += yield Request((*command, *own), script.text)
        own = []
    known = yield from _floors(where)
    left = floors.raised(known, (), holders.values())
    ended = [key for key in known if key not in left]
    if ended:
        yield Request(("HDEL", where, *ended))
    return forgotten


def _floors(where: str) -> Steps[dict[str, Floor]]:
    found = yield Request(("HGETALL", where))
    known = {text_of(field): parse_floor(value) for field, value in found.items()}
    known.pop("*", None)
    return known


def reset_floors(fence: RedisFence, by: str, lock: str | None, to: int) -> Steps[None]:
    keys = [FLOORS]
    if fence.cluster:
        keys = []
        for node in (yield from fence.nodes()):
            for those in (yield from _keys(node, f"{FLOORS}*")):
                keys += those
    for where in keys:
        lower, were = floors.reset((yield from _floors(where)), lock, to)
        for of, floor in were:
            entry = {"at": time.time(), "by": by, "floors": where, "of": of, "floor": floor}
            yield Request(("RPUSH", RESETS, json.dumps(entry)))
        if lock is None:
            yield Request(("DEL", where))
            if to:
                yield Request(("HSET", where, "", f"{to} 0", "*", f"{to} 0"))
        else:
            floor = lower[floors.own(lock)]
            yield Request(("HSET", where, floors.own(lock), f"{floor.highest} {floor.reader} 1"))
