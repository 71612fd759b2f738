"""The scripts follow the same rules as `holdfast.ledger`: the same random steps, the same answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import RedisServer
from holdfast.entries import Claim
from holdfast.model import Label, LockState, Observation, new_owner
from holdfast.stores._async.contract import Backend, Terms, Ticket
from stores import redis_server
from worlds.aio import eventually

LABEL = Label("host", 7, "test")
SHAPES = {
    "plain": (1, "lock"),
    "pool": (3, "semaphore"),
    "book": (2**31 - 1, "rwlock"),
    "chair": (1, "election"),
}
STEPS = 150


class Pair:
    """A model, which is `memory://`, and a server, on which equal steps are taken."""

    def __init__(self, model: Backend, server: Backend, seed: int) -> None:
        self.sides = (model, server)
        self.random = random.Random(seed)
        self.known: list[tuple[Ticket, Ticket]] = []
        self.marks: set[str] = set()
        """The keys of owners that have given their lease away, kept for a minute."""
        self.done: list[str] = []
        eyes = [Ticket(Terms("chair", 60.0, LABEL, kind="election"), new_owner()) for _ in (1, 2)]
        self.eyes = (eyes[0], eyes[1])
        self.after = [0, 0]
        """The number of the last change of the election that was seen on each side."""

    async def both(self, what: str, verb: str, *args: tuple[Any, Any]) -> Any:
        """Takes a step on both sides; returns the answer, which has to be the same."""
        answers = []
        for side, backend in enumerate(self.sides):
            deadline = backend.clock.now() + 10.0
            given = [pair[side] for pair in args]
            if verb == "amend":
                given, more = given[:2], given[2:]
            else:
                more = []
            try:
                answer = await getattr(backend, verb)(*given, deadline, *more)
            except holdfast.ConfigError as error:
                answer = str(error).replace("holdfast\\x1f", "")  # as the model shows a name
            if isinstance(answer, Observation) and answer.changes:
                self.after[side] = answer.changes[-1].number
            answers.append(plain(answer))
        self.done.append(f"{what}: {answers[0]}")
        story = "\n".join(self.done[-40:])
        assert answers[0] == answers[1], f"{story}\nbut the server: {answers[1]}"
        return answers[0]

    def tickets(self) -> tuple[Ticket, Ticket]:
        choose = self.random
        name = choose.choice(list(SHAPES))
        capacity, kind = SHAPES[name]
        if name != "chair" and choose.random() < 0.05:
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
        elif move < 0.7:
            await self.change_lease(choose.choice(self.known)[0])
        elif move < 0.75:
            await self.adopt(choose.choice(self.known)[0])
        elif move < 0.97:
            t = self.known.pop(choose.randrange(len(self.known)))[0]
            names, owners = (t.name, t.name), (t.owner, t.owner)
            await self.both(f"release {t.name} {t.owner[:4]}", "release", names, owners)
        else:
            name = choose.choice(list(SHAPES))
            await self.both(f"force {name}", "force_release", (name, name), ("me", "me"))
        for name in SHAPES:
            await self.both(f"inspect {name}", "inspect", (name, name))
        await self.both("observe", "observe", self.eyes, (self.after[0], self.after[1]))

    async def change_lease(self, t: Ticket) -> None:
        choose = self.random
        names, owners = (t.name, t.name), (t.owner, t.owner)
        if choose.random() < 0.3:
            await self.both(f"detach {t.owner[:4]}", "detach", names, owners, (60.0, 60.0))
            return
        weight, text = choose.choice([0, 1]), choose.choice(["a", "b", None])
        what = f"amend {t.name} {t.owner[:4]} to {weight} {text}"
        await self.both(what, "amend", names, owners, (weight, weight), (text, text))

    async def adopt(self, giver: Ticket) -> None:
        """Adopts from one that may hold the lock, may wait, or may be gone."""
        others = [t.owner for t, _ in self.known if t.name == giver.name and t.owner != giver.owner]
        owner = self.random.choice([new_owner(), new_owner(), *others])
        weight = giver.weight if self.random.random() < 0.7 else 1
        terms = (giver.name, 60.0, LABEL, weight, giver.capacity, giver.kind)
        made = [Ticket(Terms(*terms), owner, queue=False) for _ in self.sides]
        pair = (made[0], made[1])
        if owner not in others:
            self.known.append(pair)
        what = f"adopt {giver.name} {owner[:4]} from {giver.owner[:4]}"
        answer = await self.both(what, "adopt", pair, (giver.owner, giver.owner))
        if answer != ("Granted", 60.0):
            return
        model = self.sides[0]
        state = await model.inspect(giver.name, model.clock.now() + 10.0)
        if all(one.owner != giver.owner for one in (*state.holders, *state.waiters)):
            # It asks for nothing any more. The server refuses it, in case a request of it is late.
            self.known = [known for known in self.known if known[0].owner != giver.owner]
            self.marks.add(f"holdfast:{{{giver.name}}}:q:{giver.owner}")


def plain(answer: Any) -> Any:
    """Returns a result without what differs between two stores: tokens, and digits of times."""
    if isinstance(answer, LockState):
        holders = sorted((h.owner, h.weight) for h in answer.holders)
        waiters = [(w.owner, w.weight) for w in answer.waiters]
        shape = (answer.kind, answer.capacity) if holders or waiters else None
        return holders, waiters, shape
    if isinstance(answer, Observation):
        seen = [(change.owner, change.label) for change in answer.changes]
        return seen, round(answer.remaining, -1)
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
        # Nothing is left but counters, the record of what was released by force, and of the election.
        # A semaphore's token that is ahead of the clock is kept for some milliseconds.
        known = {"holdfast:audit", "holdfast:{chair}:c", "holdfast:{chair}:o"}

        def left() -> set[str]:
            keys = {key.decode() for key in server("KEYS", "*")}
            return {key for key in keys - known - pair.marks if ":token:" not in key}

        await eventually(lambda: not left())
