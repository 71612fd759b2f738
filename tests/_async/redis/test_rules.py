"""The scripts follow the same rules as `holdfast.ledger`: the same random steps, the same answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.entries import Claim
from holdfast.model import Label, LockState, new_owner
from holdfast.stores._async.contract import Backend, Terms, Ticket
from servers.redis import RedisServer
from stores import redis_server

LABEL = Label("host", 7, "test")
SHAPES = {"plain": (1, "lock"), "pool": (3, "semaphore"), "book": (2**31 - 1, "rwlock")}
STEPS = 150


class Pair:
    """A model, which is `memory://`, and a server, on which equal steps are taken."""

    def __init__(self, model: Backend, server: Backend, seed: int) -> None:
        self.sides = (model, server)
        self.random = random.Random(seed)
        self.known: list[tuple[Ticket, Ticket]] = []
        self.done: list[str] = []

    async def both(self, what: str, verb: str, *args: tuple[Any, Any]) -> None:
        answers = []
        for side, backend in enumerate(self.sides):
            deadline = backend.clock.now() + 10.0
            try:
                answer = await getattr(backend, verb)(*[pair[side] for pair in args], deadline)
            except holdfast.ConfigError as error:
                answer = str(error).replace("holdfast\\x1f", "")  # as the model shows a name
            answers.append(plain(answer))
        self.done.append(f"{what}: {answers[0]}")
        story = "\n".join(self.done[-40:])
        assert answers[0] == answers[1], f"{story}\nbut the server: {answers[1]}"

    def tickets(self) -> tuple[Ticket, Ticket]:
        choose = self.random
        name = choose.choice(list(SHAPES))
        capacity, kind = SHAPES[name]
        if choose.random() < 0.05:
            capacity, kind = 2, "share"
        weight = choose.choice([1, 1, capacity, min(2, capacity)])
        queue, barge = choose.random() < 0.7, choose.random() < 0.3
        owner = new_owner()
        made = [
            Ticket(Terms(name, 60.0, LABEL, weight, capacity, kind, barge), owner, queue)
            for _ in self.sides
        ]
        return made[0], made[1]

    async def step(self) -> None:
        choose = self.random
        move = choose.random()
        if move < 0.4 or not self.known:
            pair = self.tickets()
            self.known.append(pair)
            t = pair[0]
            asked = f"{t.weight}/{t.capacity} {t.kind} queue={t.queue} barge={t.barge}"
            await self.both(f"acquire {t.name} {asked} {t.owner[:4]}", "acquire", pair)
        elif move < 0.45:
            pair = choose.choice(self.known)
            await self.both(f"again {pair[0].owner[:4]}", "acquire", pair)
        elif move < 0.65:
            t = choose.choice(self.known)[0]
            claims = [Claim(t.name, t.owner, 60.0)]
            await self.both(f"renew {t.name} {t.owner[:4]}", "renew", (claims, claims))
        elif move < 0.97:
            t = self.known.pop(choose.randrange(len(self.known)))[0]
            names, owners = (t.name, t.name), (t.owner, t.owner)
            await self.both(f"release {t.name} {t.owner[:4]}", "release", names, owners)
        else:
            name = choose.choice(list(SHAPES))
            await self.both(f"force {name}", "force_release", (name, name), ("me", "me"))
        for name in SHAPES:
            await self.both(f"inspect {name}", "inspect", (name, name))


def plain(answer: Any) -> Any:
    """Returns a result without what differs between two stores: tokens, and digits of times."""
    if isinstance(answer, LockState):
        holders = sorted((h.owner, h.weight) for h in answer.holders)
        waiters = [(w.owner, w.weight) for w in answer.waiters]
        shape = (answer.kind, answer.capacity) if holders or waiters else None
        return holders, waiters, shape
    if isinstance(answer, list):
        return [plain(one) for one in answer]
    left = getattr(answer, "remaining", None)
    if left is not None:
        return type(answer).__name__, round(left, -1)
    if hasattr(answer, "token"):
        assert answer.token > 0
        return type(answer).__name__, answer.ttl
    return answer


@pytest.mark.parametrize("seed", range(12))
async def test_the_server_answers_as_the_model_does(seed: int) -> None:
    await compare(redis_server(), seed)


async def compare(server: RedisServer, seed: int) -> None:
    server("FLUSHALL")
    async with (
        holdfast.connect(f"memory://rules-{seed}", heartbeat=60.0, claim_window=60.0) as model,
        holdfast.connect(server.url, heartbeat=60.0, claim_window=60.0) as locks,
    ):
        pair = Pair((await model._session()).backend, (await locks._session()).backend, seed)
        for _ in range(STEPS):
            await pair.step()
        for first, _ in pair.known:
            names, owners = (first.name, first.name), (first.owner, first.owner)
            await pair.both(f"release {first.owner[:4]}", "release", names, owners)
        # Nothing is left but counters, and the record of what was released by force.
        left = {key.decode() for key in server("KEYS", "*")}
        assert {key for key in left if ":token:" not in key} <= {"holdfast:audit"}
