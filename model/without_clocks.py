"""The order of tokens, with no clock to rest on.

Anything may take any time. A request, once sent, may arrive at any moment, any number of times,
or never; so may its answer; a hold may end at any moment; a client may stand still between any
two steps. *Checked*, at every grant: its token was never granted before, and it is above every
token that was granted before this attempt had any effect on any node.

Three things make the search small, and lose nothing:

- *A hold ends when it matters.* A hold that ended and whose lock nobody took is, to everybody,
  one whose next phase 2 has not arrived. So a hold ends in the step in which the next one begins,
  whatever ended it: expiry, a release on time or late, a clean-up, a stepped clock.
- *An attempt begins when it matters*, when its first request arrives; *it chooses* in the step
  that produced the last answer it will count (which answers it had, and from which nodes, is left
  open: every choice is followed); and *it is granted* as soon as it can be. All three are the
  client's own business, and a later moment would only make what is checked weaker.
- *A round is an attempt.* A client whose round has ended begins the next under a new owner id, so
  to the nodes it is another client. Three attempts are three clients, or one client three times.

A tombstone only refuses what may as well never arrive: without clocks it may be over at any
moment, and is left out.
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
    IDLE,
    Attempt,
    Cell,
    State,
    Vote,
    clock_of,
    fresh_cell,
    highest,
)


class WithoutClocks:
    def __init__(self, rules: Rules, size: int) -> None:
        self.rules = rules
        self.majority = size // 2 + 1
        self.reads = self.majority if rules.reads is None else rules.reads

    def steps(self, state: State) -> Iterator[Step[State]]:
        for a, attempt in enumerate(state.attempts):
            if attempt.stage == IDLE and a and state.attempts[a - 1].stage == IDLE:
                continue  # one that has not begun is like another
            for n, node in enumerate(state.nodes):
                votes = on.may_vote(self.rules, node)
                if votes:
                    yield from self.acquire(state, a, n)
                if votes or not self.rules.phase2_same_run:
                    yield from self.phase2(state, a, n)
            if self.rules.owner_used_again:
                yield from self.use_again(state, a)
        if state.restarts or any([node.incarnation > 1 for node in state.nodes]):
            for n in range(len(state.nodes)):
                yield from self.restart(state, n)
                yield from self.rejoin(state, n)

    # --- clients

    def acquire(self, state: State, a: int, n: int) -> Iterator[Step[State]]:
        """Delivers a phase 1 request of attempt `a` to node `n`."""
        attempt, node = state.attempts[a], state.nodes[n]
        cell = attempt.cells[n]
        if cell.landed:
            if not state.repeats or not on.is_addressed(self.rules, node, cell.landed):
                return
            state = state._replace(repeats=state.repeats - 1)
        if attempt.stage <= ASKING and on.has(self.rules, node, a):
            vote = on.answer(node)
            if not any(v[:2] == vote[:2] for v in cell.votes):
                event = Event("asked again", a, n, value=vote.begin)
                yield from self.answered(state, a, n, vote, event)
        after = on.take(node, a, 0)
        event = Event("acquire", a, n, previous=node.owner, value=after.begin)
        yield from self.answered(with_node(state, n, after), a, n, on.answer(after), event)

    def answered(
        self, state: State, a: int, n: int, vote: Vote, event: Event
    ) -> Iterator[Step[State]]:
        """Delivers the reply of node `n`; the client may now choose, or wait for more."""
        attempt = state.attempts[a]
        cells = list(attempt.cells)
        if attempt.stage > ASKING:  # too late to be counted
            late = cells[n].votes
            if self.rules.late_reply_counted and attempt.stage == CHOSEN and not late:
                late = (vote._replace(counted=vote.begin >= attempt.token),)
                event = event._replace(note="late")
            cells[n] = Cell(vote.incarnation, late, False)
            yield self.settled(state, a, attempt._replace(cells=tuple(cells)), event)
            return
        floor = attempt.floor if attempt.stage else highest(state.granted)
        cells[n] = Cell(vote.incarnation, (*cells[n].votes, vote), False)
        asking = Attempt(ASKING, 0, floor, 0, tuple(cells))
        yield Step(event, self.tidy(with_attempt(state, a, asking)), "")
        for token, row, begins in choices(cells, n, self.majority):
            chosen = event._replace(token=token, begins=begins)
            yield self.settled(state, a, Attempt(CHOSEN, token, floor, 0, row), chosen)

    def phase2(self, state: State, a: int, n: int) -> Iterator[Step[State]]:
        """Delivers a phase 2 request of attempt `a` to node `n`."""
        attempt, node = state.attempts[a], state.nodes[n]
        if attempt.stage < CHOSEN:
            return
        for vote in attempt.cells[n].votes:
            if not vote.counted and on.is_hold(self.rules, node, a, vote):
                raised = with_node(state, n, on.raised(node, attempt.token))
                event = Event("phase 2", a, n, value=attempt.token)
                yield self.settled(raised, a, confirmed(attempt, n, node), event)

    def settled(self, state: State, a: int, attempt: Attempt, event: Event) -> Step[State]:
        """Returns the attempt as it now is, granted if it can be. Checks the grant."""
        wrong = ""
        if attempt.stage == CHOSEN and is_majority(self.rules, attempt, self.majority):
            token = attempt.token
            if state.granted >> token & 1:
                wrong = f"token {token} was granted before"
            elif token <= attempt.floor:
                wrong = f"token {attempt.floor} was granted before this attempt began"
            event = event._replace(granted=True, token=token)
            state = state._replace(granted=state.granted | 1 << token)
            attempt = attempt._replace(stage=ENDED)
        return Step(event, self.tidy(with_attempt(state, a, attempt)), wrong)

    def use_again(self, state: State, a: int) -> Iterator[Step[State]]:
        """Begins the client's next round under the owner id of the last one: a broken rule."""
        if state.attempts[a].stage == ENDED and state.repeats:
            cells = (fresh_cell(),) * len(state.nodes)
            anew = Attempt(ASKING, 0, highest(state.granted), 0, cells)
            begun = with_attempt(state, a, anew)._replace(repeats=state.repeats - 1)
            yield Step(Event("use again", a), begun, "")

    # --- nodes that forget

    def restart(self, state: State, n: int) -> Iterator[Step[State]]:
        node = state.nodes[n]
        if not state.restarts:
            return
        if state.snapshots:
            saved = with_node(state, n, on.imaged(node))
            yield Step(Event("snapshot", node=n), saved._replace(snapshots=state.snapshots - 1), "")
        for image in (None, *node.image):
            after = on.restarted(self.rules, node, image, 0)
            event = Event("restart", node=n, value=after.counter, note="snapshot" if image else "")
            down = with_node(state, n, after)._replace(restarts=state.restarts - 1)
            yield Step(event, self.tidy(down), "")

    def rejoin(self, state: State, n: int) -> Iterator[Step[State]]:
        """Has a client bring node `n` back: it reads another node, or writes what it has read.

        Nothing else concerns a node that is out, so the write comes at once behind the last read.
        """
        node = state.nodes[n]
        if node.marker == node.incarnation or self.rules.restart == "votes":
            return
        if sum(node.read) >= self.reads:  # nothing to read; or it arrives again, and is not tied
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
            after = on.having_read(self.rules, node, k, other)
            event = Event("read", node=n, other=k, value=other.counter)
            if sum(after.read) >= self.reads:
                after = on.rejoined(self.rules, after)
                event = event._replace(note="rejoin", token=after.counter)
            told = with_node(state, n, after)
            if self.rules.seals:
                told = with_node(told, k, on.sealed(other, n, node.incarnation))
            yield Step(event, self.tidy(told), "")

    # --- fewer states

    def tidy(self, state: State) -> State:
        """Forgets what can no longer have any effect, so that more states are the same."""
        nodes, granted = state.nodes, state.granted
        low = min([node.counter for node in nodes]) + 1  # no token to come is below this
        rows = []
        for a, row in enumerate(state.attempts):
            attempt = self.without_the_dead(state, a, row) if row.stage >= CHOSEN else row
            if attempt.stage == CHOSEN:
                low = min(low, attempt.token)
            elif attempt.stage == ASKING:
                low = min([low, *[vote.begin for cell in attempt.cells for vote in cell.votes]])
            rows.append(attempt)
        if granted and not state.restarts and all([n.marker == n.incarnation for n in nodes]):
            granted = (granted >> low << low) | 1 << highest(granted)
            rows = [r if r.floor >= low else Attempt(r[0], r[1], 0, 0, r[4]) for r in rows]
        return State(nodes, tuple(rows), granted, *state[3:])

    def without_the_dead(self, state: State, a: int, attempt: Attempt) -> Attempt:
        """Returns the attempt without votes that phase 2 cannot confirm; over, if too few are left."""
        rules = self.rules
        stage, token, floor, _, cells = attempt
        exact = rules.phase2 == "hold" and rules.phase2_tied and rules.phase2_same_run
        live = [
            bool(cell.votes)
            and (
                cell.votes[0].counted
                or not exact
                or on.is_hold(rules, state.nodes[n], a, cell.votes[0])
            )
            for n, cell in enumerate(cells)
        ]
        if stage == CHOSEN and sum(live) < self.majority and not rules.late_reply_counted:
            stage = ENDED
        kept = [
            cell if alive and not (stage == ENDED and cell.votes[0].counted) else cell.without_votes
            for cell, alive in zip(cells, live, strict=True)
        ]
        if stage == ENDED:
            floor = 0
            if not any([cell.votes for cell in kept]):
                token = 0
        return Attempt(stage, token, floor, 0, tuple(kept))
