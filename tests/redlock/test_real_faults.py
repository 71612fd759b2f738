"""Five real servers under the simulator's faults, and its checker reads what the clients did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from redlock.field import Field, Watcher


@contextmanager
def field(clients: int, *rest: str) -> Iterator[Field]:
    made = Field(clients, *rest)
    try:
        yield made
    finally:
        made.close()


def delay(place: Field) -> None:
    place.proxies[0].delay = 0.03
    place.goes_on()
    place.proxies[0].delay = 0.0


def lost_answers(place: Field) -> None:
    for proxy in place.proxies[:2]:
        proxy.reset_once = True
    place.until(lambda: not any(proxy.reset_once for proxy in place.proxies), "answers lost")
    place.goes_on()


def a_late_request(place: Field) -> None:
    """A request arrives after its connection broke: behind its own clean-up."""
    proxy = place.proxies[1]
    proxy.keep_once = True
    place.until(lambda: not proxy.keep_once, "a request kept")
    place.goes_on()
    place.until(lambda: bool(proxy._kept), "a request kept")
    proxy.let_go(answered=False)


def replayed_requests(place: Field) -> None:
    for proxy in place.proxies[:3]:
        seen = list(proxy.seen)  # the clients go on meanwhile
        requests = [data for data in seen if b"EVALSHA" in data and b"HELLO" not in data]
        assert proxy.replay(requests[-20:]) > 0
    place.goes_on()


def one_way(place: Field) -> None:
    place.proxies[2].swallow = True
    place.proxies[3].deaf = True
    place.goes_on()
    place.proxies[2].swallow = False
    place.proxies[3].deaf = False
    for proxy in place.proxies[2:4]:
        proxy.hang_up()
    place.all_vote()


def clients_pause(place: Field) -> None:
    """One in asyncio and one in blocking code, for longer than their leases last; the others go on."""
    for actor in place.actors[:2]:
        before = actor.count("granted")
        place.until(lambda: actor.count("granted") > before, "a grant")  # noqa: B023
        actor.pause()
    for name in ("x", "y"):
        place.take(name)  # whatever they held is over by now
    for actor in place.actors[:2]:
        actor.resume()
    place.goes_on()


def a_node_stands_still(place: Field) -> None:
    place.nodes[4].pause()
    place.goes_on()
    place.nodes[4].resume()
    place.all_vote()


def a_crash_without_data(place: Field) -> None:
    place.nodes[0].kill()
    place.goes_on()
    place.nodes[0].start()
    place.all_vote()


def a_crash_with_old_data(place: Field) -> None:
    place.nodes[1]("SAVE")
    place.goes_on()
    place.nodes[1].kill()
    place.nodes[1].start()
    assert place.nodes[1]("DBSIZE") > 0, "the snapshot was not loaded"
    place.all_vote()


def a_clock_ahead(place: Field) -> None:
    place.nodes[2].step(31)
    place.goes_on()


def clocks_that_drift(place: Field) -> None:
    """Each looks at another rate, and one of them goes back."""
    for step in range(1, 4):
        for number, node in enumerate(place.nodes):
            node.step((number - 1) * step)
        place.goes_on(2)


def run(place: Field, *faults: Callable[[Field], None]) -> None:
    for fault in faults:
        fault(place)


def test_tokens_and_exclusion_hold_on_real_nodes() -> None:
    with field(3) as place:
        run(
            place,
            delay,
            lost_answers,
            a_late_request,
            replayed_requests,
            one_way,
            clients_pause,
            a_node_stands_still,
            a_crash_without_data,
            a_crash_with_old_data,
        )
        assert place.judge() == []
        assert len(place.checker.grants) > 20


def test_tokens_rise_on_real_nodes_whose_clocks_jump_and_drift() -> None:
    with field(3) as place:
        place.checker.exclusion_promised = False  # it rests on clocks; the order of tokens does not
        run(place, a_clock_ahead, clocks_that_drift, clients_pause, replayed_requests)
        assert place.judge() == []


def test_a_client_that_does_not_look_is_caught() -> None:
    """A checker that never caught anything proves nothing."""
    with field(1, "heedless") as place:
        (actor,) = place.actors
        asked, got, token = place.take("x")
        grant = {"lock": "x", "token": token, "at": got}
        before = actor.count("write")
        place.until(lambda: actor.count("write") > before + 1, "a write after that")
        other = Watcher([{"what": "granted", "asked": asked, **grant}, {"what": "write", **grant}])
        assert any("its write was accepted after" in text for text in place.judge(other))
