"""Exclusion, where clocks and TTLs are honoured; and then tokens rise in the order of the grants.

Time is counted in ticks, the same for all. A hold expires `ttl` ticks after the request arrived,
or was repeated; a client's own deadline is `ttl` ticks after it began to ask; a node that
restarted waits `ttl` ticks. Messages and clients are still as slow as they like, and late
releases arrive whenever they like. *Checked*, at every grant: nobody else believes to hold the
lock, and the token is above every token granted before.

As without clocks, a client chooses in the step that produced the last answer it will count. A
client whose deadline has passed gives up; that its release is then on its way, and need never
arrive, is the same as that it was not sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import nodes as on
from .counting import choices, confirmed, is_majority, with_attempt, with_node
from .rules import Rules
from .search import Event, Step
from .state import (
    ASKING,
    CHOSEN,
    ENDED,
    GRANTED,
    IDLE,
    NOBODY,
    Attempt,
    Cell,
    Node,
    State,
    Vote,
    clock_of,
    fresh_cell,
    highest,
)


class WithClocks:
    def __init__(self, rules: Rules, size: int, ttl: int, *, tombstones: bool = False) -> None:
        self.rules = rules
        self.ttl = ttl
        self.tombstones = tombstones
        self.majority = size // 2 + 1
        self.reads = self.majority if rules.reads is None else rules.reads

    def steps(self, state: State) -> Iterator[Step[State]]:
        yield from self.tick(state)
        for a, attempt in enumerate(state.attempts):
            if attempt.stage == IDLE:
                if not a or state.attempts[a - 1].stage != IDLE:  # one is like another
                    yield from self.begin(state, a)
                continue
            for n, node in enumerate(state.nodes):
                votes = on.may_vote(self.rules, node)
                if votes:
                    yield from self.acquire(state, a, n)
                if votes or not self.rules.phase2_same_run:
                    yield from self.phase2(state, a, n)
                yield from self.release(state, a, n)
            yield from self.grant(state, a)
            yield from self.end(state, a)
        if state.restarts or any([node.incarnation > 1 for node in state.nodes]):
            for n in range(len(state.nodes)):
                yield from self.restart(state, n)
                yield from self.rejoin(state, n)

    def tick(self, state: State) -> Iterator[Step[State]]:
        """Lets time pass for all."""
        nodes = tuple(aged(node) for node in state.nodes)
        attempts = []
        for stage, token, floor, left, cells in state.attempts:
            faded = tuple([Cell(cell[0], cell[1], False) for cell in cells])
            over = left == 1  # its own deadline
            attempts.append(
                Attempt(ENDED if over else stage, token, floor, max(left - 1, 0), faded)
            )
        after = state._replace(nodes=nodes, attempts=tuple(attempts))
        if after != state:
            yield Step(Event("tick"), self.tidy(after), "")

    # --- clients

    def begin(self, state: State, a: int) -> Iterator[Step[State]]:
        """Has a client send phase 1 to all nodes; its own deadline counts from now."""
        asking = state.attempts[a]._replace(stage=ASKING, left=self.ttl)
        yield Step(Event("begin", a), with_attempt(state, a, asking), "")

    def acquire(self, state: State, a: int, n: int) -> Iterator[Step[State]]:
        """Delivers a phase 1 request of attempt `a` to node `n`."""
        attempt, node = state.attempts[a], state.nodes[n]
        cell = attempt.cells[n]
        if cell.tombstone:
            return
        if cell.landed and not (state.repeats and on.is_addressed(self.rules, node, cell.landed)):
            return
        repeated = state._replace(repeats=state.repeats - bool(cell.landed))
        if node.owner == NOBODY or not on.has(self.rules, node, node.owner):
            after = on.take(node, a, self.ttl)
            event = Event("acquire", a, n, value=after.begin)
        elif on.has(self.rules, node, a):
            after = node._replace(left=self.ttl)
            event = Event("asked again", a, n, value=after.begin)
        else:
            return
        yield from self.answered(with_node(repeated, n, after), a, n, on.answer(after), event)

    def answered(
        self, state: State, a: int, n: int, vote: Vote, event: Event
    ) -> Iterator[Step[State]]:
        """Delivers the reply of node `n`; the client may now choose, or wait for more."""
        attempt = state.attempts[a]
        cells = list(attempt.cells)
        votes = cells[n].votes
        new = attempt.stage == ASKING and not any(v[:2] == vote[:2] for v in votes)
        kept = (*votes, vote) if new else votes
        cells[n] = Cell(vote.incarnation, kept, cells[n].tombstone)
        landed = attempt._replace(cells=tuple(cells))
        yield Step(event, self.tidy(with_attempt(state, a, landed)), "")
        if new:
            for token, row, begins in choices(cells, n, self.majority):
                chosen = attempt._replace(stage=CHOSEN, token=token, cells=row)
                choosing = event._replace(token=token, begins=begins)
                yield Step(choosing, self.tidy(with_attempt(state, a, chosen)), "")

    def phase2(self, state: State, a: int, n: int) -> Iterator[Step[State]]:
        """Delivers a phase 2 request of attempt `a` to node `n`."""
        attempt, node = state.attempts[a], state.nodes[n]
        if attempt.stage < CHOSEN:
            return
        for vote in attempt.cells[n].votes:
            if not vote.counted and on.is_hold(self.rules, node, a, vote):
                raised = with_node(state, n, on.raised(node, attempt.token))
                event = Event("phase 2", a, n, value=attempt.token)
                sure = with_attempt(raised, a, confirmed(attempt, n, node))
                yield Step(event, self.tidy(sure), "")

    def grant(self, state: State, a: int) -> Iterator[Step[State]]:
        """Grants the lock to a client that has a majority, inside its deadline."""
        attempt = state.attempts[a]
        if attempt.stage != CHOSEN or not is_majority(self.rules, attempt, self.majority):
            return
        token, top = attempt.token, highest(state.granted)
        wrong = ""
        if any(other.stage == GRANTED for other in state.attempts):
            wrong = "another holds the lock"
        elif token <= top:
            wrong = f"token {top} was granted before"
        left = attempt.left if self.rules.deadline_from == "sending" else self.ttl
        after = with_attempt(state, a, attempt._replace(stage=GRANTED, left=left))
        granted = after._replace(granted=1 << max(token, top))
        yield Step(Event("grant", a, token=token, granted=True), self.tidy(granted), wrong)

    def end(self, state: State, a: int) -> Iterator[Step[State]]:
        """Ends an attempt that gives up, or is done: it sends its release to all nodes."""
        attempt = state.attempts[a]
        if ASKING <= attempt.stage <= GRANTED:
            note = "done" if attempt.stage == GRANTED else ""
            after = with_attempt(state, a, attempt._replace(stage=ENDED, left=0))
            yield Step(Event("end", a, note=note), self.tidy(after), "")
        elif self.rules.owner_used_again and state.repeats:
            # Broken. The release of the round before is still on its way: `floor` says so.
            anew = Attempt(ASKING, 0, 1, self.ttl, (fresh_cell(),) * len(state.nodes))
            after = with_attempt(state, a, anew)
            yield Step(Event("use again", a), after._replace(repeats=state.repeats - 1), "")

    def release(self, state: State, a: int, n: int) -> Iterator[Step[State]]:
        """Delivers a release, or a clean-up, of attempt `a` to node `n`."""
        attempt, node = state.attempts[a], state.nodes[n]
        if attempt.stage != ENDED and not attempt.floor:
            return
        after = state
        if node.owner == a:
            after = with_node(state, n, on.free(node))
        if self.tombstones and (not attempt.cells[n].landed or state.repeats):
            cells = list(attempt.cells)
            cells[n] = cells[n]._replace(tombstone=True)
            after = with_attempt(after, a, attempt._replace(cells=tuple(cells)))
        if after != state:
            yield Step(Event("release", a, n), self.tidy(after), "")

    # --- nodes that forget

    def restart(self, state: State, n: int) -> Iterator[Step[State]]:
        node = state.nodes[n]
        if not state.restarts:
            return
        if state.snapshots:
            saved = with_node(state, n, on.imaged(node))
            yield Step(Event("snapshot", node=n), saved._replace(snapshots=state.snapshots - 1), "")
        for image in (None, *node.image):
            after = on.restarted(self.rules, node, image, self.ttl)
            event = Event("restart", node=n, value=after.counter, note="snapshot" if image else "")
            down = with_node(state, n, after)._replace(restarts=state.restarts - 1)
            yield Step(event, self.tidy(down), "")

    def rejoin(self, state: State, n: int) -> Iterator[Step[State]]:
        """Has a client bring node `n` back: it reads another node, or writes what it has read."""
        node, wait = state.nodes[n], self.rules.wait
        if node.marker == node.incarnation or self.rules.restart == "votes":
            return
        if wait == "first" and node.wait:
            return
        if sum(node.read) >= self.reads:
            if wait == "none" or not node.wait:
                back = on.rejoined(self.rules, node)
                event = Event("rejoin", node=n, value=back.counter)
                yield Step(event, self.tidy(with_node(state, n, back)), "")
            return
        if self.rules.majority_lost != "stop":
            back = on.returned(self.rules, node, clock_of(state))
            event = Event("return", node=n, value=back.counter)
            yield Step(event, self.tidy(with_node(state, n, back)), "")
        for k, other in enumerate(state.nodes):
            if k == n or node.read[k]:
                continue
            if self.rules.reads_voting_only and not on.may_vote(self.rules, other):
                continue
            told = with_node(state, n, on.having_read(self.rules, node, k, other))
            if self.rules.seals:
                told = with_node(told, k, on.sealed(other, n, node.incarnation))
            yield Step(Event("read", node=n, other=k, value=other.counter), self.tidy(told), "")

    # --- fewer states

    def tidy(self, state: State) -> State:
        """Forgets what can no longer have any effect, so that more states are the same."""
        rules = self.rules
        exact = rules.phase2 == "hold" and rules.phase2_tied and rules.phase2_same_run
        rows = []
        for a, (stage, token, floor, left, cells) in enumerate(state.attempts):
            kept = cells
            if stage >= CHOSEN:
                over = stage >= GRANTED
                live = [
                    cell.without_votes
                    if cell.votes
                    and (
                        over
                        if cell.votes[0].counted
                        else exact and not on.is_hold(rules, state.nodes[n], a, cell.votes[0])
                    )
                    else cell
                    for n, cell in enumerate(cells)
                ]
                kept = tuple(live)
            pending = stage < GRANTED or any([cell.votes for cell in kept])
            rows.append(Attempt(stage, token if pending else 0, floor, left, kept))
        return State(state.nodes, tuple(rows), *state[2:])


def aged(node: Node) -> Node:
    """Returns the node one tick later: also on its disk, where expiry is a time of day."""
    if node.image and node.image[0].left:
        (image,) = node.image
        image = image._replace(left=image.left - 1)
        if not image.left:
            image = image._replace(owner=NOBODY, begin=0, born=0)
        node = node._replace(image=(image,))
    if node.left == 1:
        node = on.free(node)
    elif node.left:
        node = node._replace(left=node.left - 1)
    if node.wait:
        node = node._replace(wait=node.wait - 1)
    return node
