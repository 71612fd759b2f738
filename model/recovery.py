"""The first start and the rejoin of nodes, by several clients at once, call by call.

The other two worlds take for granted that the last step of a rejoin happens once, and that a later
incarnation can be told from an earlier one. Here every client that is connected brings nodes back,
without knowing of the others, and run ids have no order: a *life* is numbered by those who bring the
node back, from what other nodes know of it. Locks and counters are left out. *Checked*:

- a node that had its part in grants does not vote in a new run before others were read and sealed;
- its new life has a larger number than any in which it had;
- a node that votes is not known, on another that votes, as newer: its votes would be dropped.

A client learns the run id of a node with its connection; a request is only obeyed by that run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .rules import Rules
from .search import Event, Step

UNSEEN, BLANK, VOTES, OUT = range(4)


class Known(NamedTuple):
    """The life of another node that a node was told of: its number, and its run."""

    life: int = 0
    run: int = 0


class Node(NamedTuple):
    run: int
    marker: int
    """The run that may vote; 0: there never was one, as far as the node remembers."""
    life: int
    noted: int
    """The run for which it was noted that it is to start or to come back."""
    first: bool
    """True if the node was noted for a first start."""
    number: int
    """The number of the new life, noted here before others are told: the first one proposed."""
    knows: tuple[Known, ...]
    before: int
    """The largest number of a life in which an earlier run had its part in grants."""
    roster: tuple[int, ...] = ()
    """The runs of all nodes that take part in a first start, as noted here. The first note stays."""
    began: tuple[int, ...] = ()
    """The roster with which the node began to vote. All nodes had noted it by then."""


class View(NamedTuple):
    """A node, as a client last saw it."""

    kind: int
    run: int
    life: int
    began: tuple[int, ...] = ()


class Task(NamedTuple):
    """The work of a client, one call after the other."""

    kind: str
    node: int = 0
    life: int = 0
    done: tuple[int, ...] = ()
    """The other nodes that this call has been made to."""
    saw: tuple[Known, ...] = ()
    """The life of this node that each other was seen to know."""
    learned: tuple[Known, ...] = ()
    """The lives of all nodes that the asked nodes know, and their own."""
    alone: bool = False
    """True if the node is to come back by the clock, with whatever others can be told."""


class Client(NamedTuple):
    views: tuple[View, ...]
    task: Task


class State(NamedTuple):
    nodes: tuple[Node, ...]
    clients: tuple[Client, ...]
    restarts: int


NOTHING = Task("")


def beginning(size: int, clients: int, restarts: int, *, fresh: bool) -> State:
    """Returns nodes that were never used, or that vote in their first life."""
    nobody = (Known(),) * size
    node = Node(1, 0, 0, 0, False, 0, nobody, 0) if fresh else Node(1, 1, 1, 0, False, 0, nobody, 0)
    client = Client((View(UNSEEN, 0, 0),) * size, NOTHING)
    return State((node,) * size, (client,) * clients, restarts)


class RecoveryWorld:
    def __init__(self, rules: Rules, size: int) -> None:
        self.rules = rules
        self.size = size
        self.majority = size // 2 + 1
        self.nothing = (Known(),) * size

    def steps(self, state: State) -> Iterator[Step[State]]:
        for n, node in enumerate(state.nodes):
            if state.restarts:
                yield from self.restart(state, n, node)
        for c, client in enumerate(state.clients):
            if client.task == NOTHING:
                for n in range(self.size):
                    yield from self.reach(state, c, n)
                    yield from self.begin(state, c, n)
            else:
                going = list(getattr(self, client.task.kind)(state, c, client, client.task))
                # One that stops for ever need not be told from one that is slow.
                yield from going or [self.did(state, c, Event("give up", c), NOTHING)]

    def restart(self, state: State, n: int, node: Node) -> Iterator[Step[State]]:
        voting = sum(other.marker == other.run for other in state.nodes)
        granted = node.marker == node.run and voting >= self.majority
        before = max(node.before, node.life if granted else 0)
        empty = Node(node.run + 1, 0, 0, 0, False, 0, self.nothing, before)
        kept = node._replace(run=node.run + 1, before=before)
        for after, note in ((empty, ""), (kept, "snapshot")):
            down = with_node(state, n, after)._replace(restarts=state.restarts - 1)
            yield Step(Event("restart", node=n, note=note), down, "")

    def reach(self, state: State, c: int, n: int) -> Iterator[Step[State]]:
        """Connects a client to a node: it sees the run id and the marker."""
        node = state.nodes[n]
        kind = VOTES if node.marker == node.run else OUT if node.marker else BLANK
        view = View(kind, node.run, node.life, node.began if kind == VOTES else ())
        if view != state.clients[c].views[n]:
            yield seen(
                state, c, n, view, Event("see", c, n, note=("", "blank", "voting", "out")[kind])
            )

    def begin(self, state: State, c: int, n: int) -> Iterator[Step[State]]:
        """Has a client that sees node `n` not vote set out to change that."""
        views = state.clients[c].views
        if views[n].kind not in (BLANK, OUT):
            return
        if all(view.kind == BLANK for view in views):
            if n == 0:
                yield self.did(state, c, Event("set out first", c), Task("note_first"))
        else:
            yield self.did(state, c, Event("set out", c, n), Task("note_again", n))

    # --- a first start

    def note_first(self, state: State, c: int, client: Client, task: Task) -> Iterator[Step[State]]:
        """Notes on each node in turn that it is to start for the first time."""
        n = len(task.done)
        node = state.nodes[n]
        if node.run != client.views[n].run:
            return
        if node.marker == node.run:  # somebody was first
            view = View(VOTES, node.run, node.life, node.began)
            done = self.did(state, c, Event("see", c, n, note="voting"), NOTHING)
            yield seen(done.state, c, n, view, done.event)
            return
        if node.noted != node.run:
            node = node._replace(noted=node.run, number=0, roster=())
        noted = node._replace(first=True)
        following = Task("note_first", done=(*task.done, n))
        if len(following.done) == self.size:
            following = Task("enrol")
        after = self.did(with_node(state, n, noted), c, Event("note first", c, n), following)
        yield after

    def enrol(self, state: State, c: int, client: Client, task: Task) -> Iterator[Step[State]]:
        """Notes on each node in turn which runs take part. A node that has noted others ends it."""
        n = len(task.done)
        node = state.nodes[n]
        ours = tuple([view.run for view in client.views])
        if node.run != client.views[n].run or node.noted != node.run:
            return
        if node.marker == node.run:
            view = View(VOTES, node.run, node.life, node.began)
            done = self.did(state, c, Event("see", c, n, note="voting"), NOTHING)
            yield seen(done.state, c, n, view, done.event)
            return
        if node.roster and node.roster != ours:
            return
        following = Task("enrol", done=(*task.done, n))
        if len(following.done) == self.size:
            following = Task("start")
        noted = with_node(state, n, node._replace(roster=ours))
        yield self.did(noted, c, Event("enrol", c, n), following)

    def start(self, state: State, c: int, client: Client, task: Task) -> Iterator[Step[State]]:
        """Starts each node in turn."""
        n = len(task.done)
        node = state.nodes[n]
        if node.run != client.views[n].run:
            return
        if node.number and node.marker != node.run and self.rules.number_noted:
            return  # others have begun to bring it back, and know it by that number
        if node.marker != node.run and node.roster != tuple([view.run for view in client.views]):
            return
        done = (*task.done, n)
        following = Task("start", done=done) if len(done) < self.size else NOTHING
        yield self.admitted(state, c, n, 1, following, "first")

    # --- a rejoin

    def note_again(self, state: State, c: int, client: Client, task: Task) -> Iterator[Step[State]]:
        """Notes that node `n` is to come back: from here it is timed. It may vote already."""
        n = task.node
        node = state.nodes[n]
        if node.run != client.views[n].run:
            return
        if node.marker == node.run:
            view = View(VOTES, node.run, node.life, node.began)
            done = self.did(state, c, Event("see", c, n, note="voting"), NOTHING)
            yield seen(done.state, c, n, view, done.event)
            return
        if node.noted != node.run:
            node = node._replace(noted=node.run, first=False, number=0, roster=())
        noted = with_node(state, n, node)
        begun = any(view.began and view.began == node.roster for view in client.views)
        if node.first and begun and not node.number:
            # It takes part in a first start that has begun, and has not voted in any: nothing to read.
            yield self.admitted(noted, c, n, 1, NOTHING, "first")
            return
        others_vote = any(view.kind == VOTES for view in client.views)
        if self.rules.noted_may_start and node.first and others_vote:
            yield self.admitted(noted, c, n, 1, NOTHING, "first")
            return
        life = max(client.views[n].life, 1)
        yield self.did(
            noted, c, Event("note", c, n), Task("look", n, life, (), self.nothing, self.nothing)
        )

    def look(self, state: State, c: int, client: Client, task: Task) -> Iterator[Step[State]]:
        """Asks the others that vote which life of node `n` they know."""
        n = task.node
        for k in self.others(state, client, task):
            known = state.nodes[k].knows[n]
            saw = (*task.saw[:k], known, *task.saw[k + 1 :])
            learned = self.learn(task.learned, state.nodes[k], k)
            following = Task("look", n, task.life, (*task.done, k), saw, learned)
            if len(following.done) >= self.majority:
                life = max(task.life, max(saw).life) + 1
                if self.rules.majority_lost != "stop" and self.rules.numbers_from_clock:
                    life = max(life, clock_of(state))
                following = Task(
                    "propose" if self.rules.number_noted else "seal", n, life, (), (), learned
                )
            yield self.did(state, c, Event("look", c, n, k, value=known.life), following)
        if self.rules.majority_lost != "stop" and not task.done:
            alone = Task("propose", n, clock_of(state), (), (), task.learned, True)
            yield self.did(state, c, Event("miss", c, n), alone)

    def propose(self, state: State, c: int, client: Client, task: Task) -> Iterator[Step[State]]:
        """Notes the number of the new life on the node, unless one is there. Only in the same run."""
        n = task.node
        node = state.nodes[n]
        if node.run == client.views[n].run == node.noted:
            noted = node._replace(number=node.number or task.life)
            event = Event("propose", c, n, value=noted.number)
            following = task._replace(kind="seal", life=noted.number)
            yield self.did(with_node(state, n, noted), c, event, following)

    def seal(self, state: State, c: int, client: Client, task: Task) -> Iterator[Step[State]]:
        """Reads the counters of the others that vote; each learns of the new life."""
        n = task.node
        for k in self.others(state, client, task):
            known = state.nodes[k].knows[n]
            if task.life > known.life:
                known = Known(task.life, client.views[n].run)
            knows = (*state.nodes[k].knows[:n], known, *state.nodes[k].knows[n + 1 :])
            after = with_node(state, k, state.nodes[k]._replace(knows=knows))
            done = (*task.done, k)
            kind = "admit" if len(done) >= self.majority else "seal"
            event = Event("seal", c, n, k, value=task.life)
            learned = self.learn(task.learned, state.nodes[k], k)
            following = task._replace(kind=kind, done=done, learned=learned)
            step = self.did(after, c, event, following)
            yield Step(step.event, step.state, self.stranded(step.state))
        if task.alone:  # the others cannot be reached, or not by this client
            yield from self.admit(state, c, client, task)

    def admit(self, state: State, c: int, client: Client, task: Task) -> Iterator[Step[State]]:
        if state.nodes[task.node].run == client.views[task.node].run:
            yield self.admitted(state, c, task.node, task.life, NOTHING, "", task.learned)

    def admitted(
        self,
        state: State,
        c: int,
        n: int,
        life: int,
        following: Task,
        how: str,
        learned: tuple[Known, ...] = (),
    ) -> Step[State]:
        """Writes the marker, unless it is there already. Checks the node that comes back."""
        node = state.nodes[n]
        wrong = ""
        if node.marker != node.run:
            if how and node.before:
                wrong = "it voted before it restarted, and has read nothing"
            if not wrong and life <= node.before:
                wrong = f"it voted before as life {node.before}"
            knows = learned or self.nothing
            began = node.roster if how else ()
            node = node._replace(
                marker=node.run, life=life, noted=0, first=False, number=0, knows=knows
            )
            node = node._replace(roster=(), began=began)
        after = self.did(with_node(state, n, node), c, Event("admit", c, n, value=life), following)
        view = View(VOTES, node.run, node.life, node.began)
        known = seen(after.state, c, n, view, after.event)
        return Step(after.event, known.state, wrong or self.stranded(known.state))

    def learn(self, learned: tuple[Known, ...], other: Node, k: int) -> tuple[Known, ...]:
        knows = list(map(max, learned, other.knows))
        knows[k] = max(knows[k], Known(other.life, other.run))
        return tuple(knows)

    def others(self, state: State, client: Client, task: Task) -> Iterator[int]:
        """Returns nodes that vote, and that this client is right to take for voting."""
        for k, node in enumerate(state.nodes):
            view = client.views[k]
            votes = view.kind == VOTES and node.run == view.run == node.marker
            if votes and k != task.node and k not in task.done:
                yield k

    def stranded(self, state: State) -> str:
        """Returns a node that votes, and whose votes all would be dropped."""
        for n, node in enumerate(state.nodes):
            if node.marker != node.run:
                continue
            for other in state.nodes:
                life = other.knows[n].life
                if other.marker == other.run and life > node.life:
                    return f"another knows of life {life} of a node that votes as {node.life}"
        return ""

    def did(self, state: State, c: int, event: Event, task: Task) -> Step[State]:
        clients = list(state.clients)
        # In which order nodes were asked makes no difference; in a first start there is only one.
        clients[c] = clients[c]._replace(task=task._replace(done=tuple(sorted(task.done))))
        return Step(event, state._replace(clients=tuple(clients)), "")


def seen(state: State, c: int, n: int, view: View, event: Event) -> Step[State]:
    clients = list(state.clients)
    views = list(clients[c].views)
    views[n] = view
    clients[c] = clients[c]._replace(views=tuple(views))
    return Step(event, state._replace(clients=tuple(clients)), "")


def clock_of(state: State) -> int:
    """Returns the lowest number for a life that a clock can show: later than all there ever were."""
    lives = [life for node in state.nodes for life in (node.life, node.number, node.before)]
    lives += [known.life for node in state.nodes for known in node.knows]
    return max(lives) + 1


def with_node(state: State, n: int, node: Node) -> State:
    return state._replace(nodes=(*state.nodes[:n], node, *state.nodes[n + 1 :]))
