"""The trace of a counterexample, in words."""

from __future__ import annotations

from collections.abc import Iterator

from .search import Event, Found, TraceStep
from .state import State


def trace_text(found: Found) -> str:
    return "\n".join(lines(found))


def lines(found: Found) -> Iterator[str]:
    nodes = found.start.nodes
    if isinstance(found.start, State):
        counters = ", ".join(str(node.counter) for node in nodes)
        yield f"     Nodes 1 to {len(nodes)} vote; their counters are at {counters}."
    else:
        how = "vote, in their first life" if nodes[0].marker else "have never been used"
        yield f"     Nodes 1 to {len(nodes)} {how}."
    names: dict[int, str] = {}
    for number, step in enumerate(found.trace, 1):
        for place in (step.event.attempt, step.event.previous):
            if place >= 0:
                names.setdefault(step.attempts[place], chr(ord("A") + len(names)))
        yield f"{number:4} {TraceLine(step, names).text()}"
    yield f"     Wrong: {found.trace[-1].wrong}."


class TraceLine:
    def __init__(self, step: TraceStep, names: dict[int, str]) -> None:
        self.event: Event = step.event
        self._scene = step
        self._names = names

    def who(self, place: int) -> str:
        return self._names[self._scene.attempts[place]]

    def node(self, place: int) -> str:
        return f"node {self._scene.nodes[place] + 1}"

    def text(self) -> str:
        event = self.event
        text = getattr(self, "on_" + event.kind.replace(" ", "_"))()
        if event.begins:
            text += self.choice()
        if event.granted and event.kind != "grant":
            text += f" {self.who(event.attempt)} is granted token {event.token}."
        return str(text)

    def choice(self) -> str:
        """Returns how phase 1 ended."""
        event = self.event
        counted = sorted((self.node(n), begin, n) for n, begin in enumerate(event.begins) if begin)
        answers = ", ".join(f"{name}: {begin}" for name, begin, _ in counted)
        below = " and ".join(name for name, begin, _ in counted if begin < event.token)
        text = f" {self.who(event.attempt)} has {answers}, so its token is {event.token}"
        return text + (f"; phase 2 goes to {below}." if below else ".")

    def on_acquire(self) -> str:
        event = self.event
        who, node = self.who(event.attempt), self.node(event.node)
        text = ""
        if event.previous >= 0:
            text = f"{self.who(event.previous)}'s hold on {node} ends. "
        late = f" That is late, and {who} counts it." if event.note == "late" else ""
        return f"{text}{who}'s acquire arrives at {node}: a hold begins at {event.value}.{late}"

    def on_asked_again(self) -> str:
        event = self.event
        who, node = self.who(event.attempt), self.node(event.node)
        return f"{who}'s acquire arrives at {node}, where {who} has it since {event.value}."

    def on_phase_2(self) -> str:
        event = self.event
        who, node = self.who(event.attempt), self.node(event.node)
        return f"{who}'s phase 2 for token {event.value} arrives at {node} and is confirmed."

    def on_use_again(self) -> str:
        return f"{self.who(self.event.attempt)} begins its next round, with the same owner id."

    def on_begin(self) -> str:
        return f"{self.who(self.event.attempt)} begins to ask; its deadline counts from here."

    def on_grant(self) -> str:
        event = self.event
        return f"{self.who(event.attempt)} has its majority: granted, token {event.token}."

    def on_end(self) -> str:
        who = self.who(self.event.attempt)
        verb = "is done" if self.event.note else "gives up"
        return f"{who} {verb}, and sends its release to all nodes."

    def on_release(self) -> str:
        return (
            f"A release of {self.who(self.event.attempt)} arrives at {self.node(self.event.node)}."
        )

    def on_tick(self) -> str:
        return "Time passes: one tick."

    def on_snapshot(self) -> str:
        return f"{self.node(self.event.node).capitalize()} writes a snapshot."

    def on_restart(self) -> str:
        event = self.event
        how = "empty"
        if event.note:
            how = f"from its snapshot, counter {event.value}"
        return f"{self.node(event.node).capitalize()} restarts, {how}."

    def on_read(self) -> str:
        event = self.event
        node = self.node(event.node)
        text = f"To bring {node} back, {self.node(event.other)} is read: {event.value}."
        if event.note:
            text += f" {node.capitalize()} votes again, counter {event.token}."
        return text

    def on_rejoin(self) -> str:
        event = self.event
        return f"{self.node(event.node).capitalize()} votes again, counter {event.value}."

    def on_return(self) -> str:
        event = self.event
        return (
            f"{self.node(event.node).capitalize()} comes back by the clock, counter {event.value}."
        )

    # Coming back, call by call.

    def on_see(self) -> str:
        event = self.event
        return f"{self.who(event.attempt)} finds {self.node(event.node)} {event.note}."

    def on_set_out_first(self) -> str:
        return f"{self.who(self.event.attempt)} found all blank, and begins a first start."

    def on_set_out(self) -> str:
        return (
            f"{self.who(self.event.attempt)} sets out to bring {self.node(self.event.node)} back."
        )

    def on_give_up(self) -> str:
        return f"{self.who(self.event.attempt)} gets no further, and begins anew."

    def on_note_first(self) -> str:
        event = self.event
        return f"{self.who(event.attempt)} notes on {self.node(event.node)} that it is to start."

    def on_enrol(self) -> str:
        event = self.event
        return f"{self.who(event.attempt)} notes on {self.node(event.node)} who takes part."

    def on_note(self) -> str:
        event = self.event
        return (
            f"{self.who(event.attempt)} notes on {self.node(event.node)} that it is to come back."
        )

    def on_look(self) -> str:
        event = self.event
        return (
            f"{self.who(event.attempt)} asks {self.node(event.other)} which life of "
            f"{self.node(event.node)} it knows: {event.value or 'none'}."
        )

    def on_miss(self) -> str:
        event = self.event
        return (
            f"{self.who(event.attempt)} finds too few that vote: {self.node(event.node)} is to come "
            "back by the clock."
        )

    def on_propose(self) -> str:
        event = self.event
        return f"{self.who(event.attempt)} has {self.node(event.node)} note it: life {event.value}."

    def on_seal(self) -> str:
        event = self.event
        return (
            f"{self.who(event.attempt)} reads {self.node(event.other)}, which learns of life "
            f"{event.value} of {self.node(event.node)}."
        )

    def on_admit(self) -> str:
        event = self.event
        return (
            f"{self.who(event.attempt)} lets {self.node(event.node)} vote, as life {event.value}."
        )
