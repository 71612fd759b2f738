"""The steps of a node, each as one script does it. Nothing here knows a client or the network.

A node's incarnation is its server's, which a script cannot see; its marker is what it compares. A
client learns the incarnation with its connection, and names it in every request on it. So a
request is obeyed where the marker is that of the incarnation that runs.
"""

from __future__ import annotations

from .rules import Rules
from .state import NOBODY, Image, Node, Vote, newest


def may_vote(rules: Rules, node: Node) -> bool:
    if rules.restart == "votes":
        return True
    if rules.restart == "votes with data":
        return node.marker != 0
    return node.marker == node.incarnation


def is_addressed(rules: Rules, node: Node, incarnation: int) -> bool:
    """Returns whether a phase 1 request that names `incarnation` is for the one that runs."""
    return node.marker == incarnation or not rules.take_tied


def has(rules: Rules, node: Node, owner: int) -> bool:
    """Returns whether `owner` holds the lock."""
    if node.owner != owner:
        return False
    return node.born == node.marker or not rules.holds_end_with_incarnation


def take(node: Node, owner: int, ttl: int) -> Node:
    """Runs phase 1 on a free lock: raises the counter by one, and keeps the value beside the owner."""
    begin = node.counter + 1
    return Node(begin, owner, begin, node.marker, ttl, *node[5:])


def free(node: Node) -> Node:
    return node._replace(owner=NOBODY, begin=0, born=0, left=0)


def answer(node: Node) -> Vote:
    """Returns the vote that phase 1 gives the owner of the hold."""
    return Vote(node.begin, node.marker, node.knows, False)


def is_hold(rules: Rules, node: Node, owner: int, vote: Vote) -> bool:
    """Returns whether the hold here is the one of the vote, as phase 2 asks."""
    if rules.phase2_tied and node.marker != vote.incarnation:
        return False
    if rules.phase2 == "always":
        return True
    if not has(rules, node, owner):
        return False
    return rules.phase2 == "owner" or node.begin == vote.begin


def raised(node: Node, token: int) -> Node:
    """Runs phase 2 in the hold of phase 1."""
    return Node(max(node.counter, token), *node[1:])


def restarted(rules: Rules, node: Node, image: Image | None, wait: int) -> Node:
    """Restarts a node, empty or with the contents of its disk."""
    nobody = (0,) * len(node.knows)
    # A rejoin that was under way goes on in the client, but this incarnation will refuse it.
    rejoin = (nobody, 0, nobody) if rules.rejoin_tied else node[10:]
    if image is None:
        image = Image(0, NOBODY, 0, 0, 0, 0, nobody)
    return Node(
        image.counter,
        image.owner,
        image.begin,
        image.born,
        image.left,
        node.incarnation + 1,
        image.marker,
        image.knows,
        (),
        wait,
        *rejoin,
    )


def imaged(node: Node) -> Node:
    """Writes a snapshot."""
    image = Image(*node[:5], node.marker, node.knows)
    return node._replace(image=(image,))


def sealed(node: Node, about: int, incarnation: int) -> Node:
    """Leaves the new incarnation of node `about` here, as a read for its rejoin does."""
    knows = list(node.knows)
    knows[about] = max(knows[about], incarnation)
    return node._replace(knows=tuple(knows))


def having_read(rules: Rules, node: Node, number: int, other: Node) -> Node:
    """Returns `node` after its rejoin has read `other`."""
    read = list(node.read)
    read[number] = 1
    learned = list(newest(node.learned, other.knows))
    if rules.notes_whom_it_read:
        learned[number] = max(learned[number], other.marker)
    best = max(node.best, other.counter)
    return node._replace(read=tuple(read), best=best, learned=tuple(learned))


def returned(rules: Rules, node: Node, clock: int) -> Node:
    """Takes the last step of a node that comes back without a majority to read from."""
    best = node.best if rules.majority_lost == "seen" else max(node.best, clock)
    return rejoined(rules, node._replace(best=best))


def rejoined(rules: Rules, node: Node) -> Node:
    """Takes the last step of a rejoin: the maxima and the marker."""
    nobody = (0,) * len(node.knows)
    counter = max(node.counter, node.best) if rules.rejoin_counter == "raised" else node.best
    back = node._replace(counter=counter, marker=node.incarnation, wait=0)
    if rules.passes_seals_on:
        back = back._replace(knows=newest(node.knows, node.learned))
    if rules.holds_end_with_incarnation and node.born != node.incarnation:
        back = free(back)
    if rules.rejoin_tied:
        # A repetition would change nothing. (Where it is not refused, it is remembered.)
        back = back._replace(read=nobody, best=0, learned=nobody)
    return back
