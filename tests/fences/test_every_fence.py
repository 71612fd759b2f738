"""The rules of tokens, on every fence that there is."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import holdfast
from fences.every import SITES
from fences.scenes import DAY, elsewhere, refused, run_at_once
from fences.sites import Site

T = 1_800_000_000_000_000
"""A token as most stores make it: a time in µs."""


def test_lower_is_refused_equal_and_higher_pass(site: Site) -> None:
    site.write("x", "a", 33)
    assert (site.read("x"), site.highest("x")) == ("a", 33)
    site.write("x", "b", 33)  # the same holder's next write
    assert site.read("x") == "b"
    site.write("x", "c", 34)
    assert (site.read("x"), site.highest("x")) == ("c", 34)
    with refused("stale", 34):
        site.write("x", "d", 33)
    assert (site.read("x"), site.highest("x")) == ("c", 34)
    site.write("x", "e", 34)
    assert site.read("x") == "e"


def test_the_refusal_says_what_happened_and_what_to_do(site: Site) -> None:
    site.write("x", "a", 34)
    with pytest.raises(holdfast.StaleToken) as caught:
        site.write("x", "b", 33)
    error = caught.value
    assert error.token == 33
    assert error.resource.endswith("x")
    for word in ("33", "34", "acquire again"):
        assert word in str(error)


def test_tokens_keep_all_their_digits(site: Site) -> None:
    """2^53 and more, where doubles lose some."""
    for near in (2**53, T, 2**63 - 3):
        resource = f"x{near}"
        site.write(resource, "a", near + 1)
        with refused("stale", near + 1):
            site.write(resource, "b", near)
        site.write(resource, "c", near + 2)
        assert site.highest(resource) == near + 2


def test_more_digits_is_higher(site: Site) -> None:
    site.write("x", "a", 999)
    site.write("x", "b", 1000)
    with refused("stale", 1000):
        site.write("x", "c", 999)


def test_single_use(kind: str, tmp_path: Path) -> None:
    site = SITES[kind](tmp_path, single_use=True)
    try:
        site.write("x", "a", 33)
        with refused("used", 33):
            site.write("x", "b", 33)
        with refused("stale", 33):
            site.write("x", "b", 32)
        site.write("x", "c", 34)
        assert site.read("x") == "c"
    finally:
        site.close()


def test_single_use_is_one_use_among_many_at_once(kind: str, tmp_path: Path) -> None:
    site = SITES[kind](tmp_path, single_use=True)
    passed: list[str] = []
    together = threading.Barrier(6)

    def write(value: str) -> None:
        together.wait(60)
        with suppress(holdfast.StaleToken):
            site.write("x", value, 34)
            passed.append(value)

    try:
        site.write("x", "before", 33)
        run_at_once(partial(write, f"w{n}") for n in range(6))
        assert passed == [site.read("x")]
    finally:
        site.close()


def test_resources_do_not_know_of_each_other(site: Site) -> None:
    names = [f"row {n}" for n in range(20)] + ["Row 1", "row 1 ", "rów 1", "row%201", "{row}1"]
    for number, name in enumerate(names, 1):
        site.write(name, name, number * 10)
    for number, name in enumerate(names, 1):
        with refused("stale", number * 10):
            site.write(name, "late", number * 10 - 1)
        assert site.read(name) == name


def test_far_below_is_a_store_that_lost_its_memory(site: Site) -> None:
    site.write("x", "a", T)
    with refused("store-lost-memory", T):
        site.write("x", "b", 17)
    with refused("store-lost-memory", T):
        site.write("x", "b", T - 40 * DAY)
    with refused("stale", T):
        site.write("x", "b", T - DAY)
    assert site.read("x") == "a"


def test_the_memory_survives_a_restart(site: Site) -> None:
    if not site.restarts:
        return  # it is a promise of the others
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("a").acquire()
        other = locks.lock("b").acquire()
        site.write("x", "a", lease)
        with elsewhere(site) as again:
            with refused("stale", lease.token):
                again.write("x", "b", lease.token - 1)
            with refused("other-lock", lease.token):
                again.write("x", "b", other)
            again.write("x", "c", lease)
            assert (site.read("x"), again.highest("x")) == ("c", lease.token)


def test_a_late_writer_whose_rival_is_another_process(site: Site) -> None:
    """Whatever his own fence remembers of his last write, it is the resource that decides."""
    if not site.restarts:
        return  # others have no way to it
    with elsewhere(site) as rival:
        for late, newer in ((33, 34), (35, 36)):
            site.write("x", f"a {late}", late)
            site.write("x", f"b {late}", late)
            rival.write("x", f"c {newer}", newer)
            with refused("stale", newer):
                site.write("x", "late", late)
            assert (site.read("x"), site.highest("x")) == (f"c {newer}", newer)
        with holdfast.connect("memory://") as locks:
            first = locks.lock("y").acquire()
            site.write("y", "a", first)
            site.write("y", "b", first)
            first.release()
            second = locks.lock("y").acquire()
            rival.write("y", "c", second)
            with refused("stale", second.token):
                site.write("y", "late", first)
            assert site.read("y") == "c"


def test_crash_between_check_and_write(site: Site) -> None:
    site.write("x", "a", 33)
    site.crash("x", "b", 34)
    assert site.read("x") == "a"
    # Neither; or, where what is guarded cannot be undone, the mark alone, which is on the safe side.
    assert site.highest("x") == (33 if site.transactions else 34)
    site.write("x", "c", 34)
    assert site.read("x") == "c"
    site.crash("y", "b", 34)
    assert site.read("y") is None
    site.write("y", "c", 35)


def test_an_overwrite_without_the_fence_does_not_let_an_old_token_in(site: Site) -> None:
    site.write("x", "a", 34)
    site.overwrite("x", "by somebody else")
    with pytest.raises((holdfast.StaleToken, holdfast.GuaranteeError)):
        site.write("x", "late", 33)
    assert site.read("x") == "by somebody else"
    if site.highest("x") == 0:  # its mark went with it, which was noticed
        site.reset("x", to=34)
        with refused("stale", 34):
            site.write("x", "late", 33)
    site.write("x", "b", 34)
    assert (site.read("x"), site.highest("x")) == ("b", 34)


@pytest.mark.parametrize("token", [0, -1, 2**63, True, 1.0, "7", None, object()])
def test_what_is_no_token_is_refused_before_anything_is_sent(site: Site, token: object) -> None:
    with pytest.raises(holdfast.ConfigError, match="fencing token"):
        site.write("x", "a", token)  # type: ignore[arg-type]
    assert site.highest("x") == 0


def test_the_fence_can_be_proved_in_its_place(site: Site) -> None:
    site.verify()
    site.verify()


def test_fifty_writers_with_random_delays(site: Site) -> None:
    tokens = list(range(1, 51))
    dice = random.Random(6)
    dice.shuffle(tokens)
    accepted: list[tuple[float, float, int]] = []

    def write(token: int, delays: list[float]) -> None:
        for turn, delay in enumerate(delays):
            time.sleep(delay)
            began = time.monotonic()
            with suppress(holdfast.StaleToken):
                site.write("x", f"{token} {turn}", token)
                accepted.append((began, time.monotonic(), token))

    run_at_once(partial(write, token, [dice.random() * 0.05 for _ in range(3)]) for token in tokens)
    assert site.read("x") == "50 2"
    assert site.highest("x") == 50
    for began, _, token in accepted:
        over = [higher for _, ended, higher in accepted if ended < began and higher > token]
        assert not over, f"{token} was accepted after {max(over)}"
