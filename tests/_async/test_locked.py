"""Locks around functions: `@locks.locked(template)`, and a lock that is itself a decorator."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from enum import Enum
from typing import Any

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually


class Colour(Enum):
    RED = 1


class Place:
    """A place where decorated functions tell which locks were held while they ran."""

    def __init__(self, locks: holdfast.Locks) -> None:
        self.locks = locks

    async def held(self) -> list[str]:
        return [state.name for state in await self.locks.list() if state.held]


async def test_the_arguments_name_the_lock() -> None:
    async with holdfast.connect("memory://") as locks:
        place = Place(locks)

        @locks.locked("report:{customer_id}:{day}:{kind}", ttl=20.0, timeout=5.0)
        async def report(customer_id: int, /, day: date, *, kind: str = "full") -> list[str]:
            """Makes one."""
            return await place.held()

        day = date(2024, 2, 29)
        assert await report(7, day) == ["report:7:2024-02-29:full"]
        assert await report(8, day=day, kind="short") == ["report:8:2024-02-29:short"]
        assert await place.held() == []
        assert report.__name__ == "report"
        assert report.__doc__ == "Makes one."
        with pytest.raises(TypeError, match="missing"):
            await report(7)  # type: ignore[call-arg]


async def test_methods_keywords_and_constants() -> None:
    async with holdfast.connect("memory://") as locks:
        place = Place(locks)

        class Shop:
            @locks.locked("shop:{number}")
            async def sell(self, number: uuid.UUID) -> list[str]:
                return await place.held()

        number = uuid.uuid4()
        assert await Shop().sell(number) == [f"shop:{number}"]

        @locks.locked("of:{extra}")
        async def loose(*numbers: int, **extras: Any) -> list[str]:
            return await place.held()

        assert await loose(1, 2, extra="x") == ["of:x"]
        with pytest.raises(holdfast.ConfigError, match="'extra', which was not given"):
            await loose(1)

        @locks.locked("all {{of}} them")
        async def constant() -> list[str]:
            return await place.held()

        assert await constant() == ["all {of} them"]


async def test_a_function_gets_its_lease_where_it_asks_for_it() -> None:
    async with holdfast.connect("memory://") as locks:

        @locks.locked("first:{number}", lease_as="lease")
        async def first(lease: holdfast.Lease, number: int, *more: int, **rest: int) -> Any:
            assert (await locks.inspect(lease.name)).token == lease.token
            return lease.name, number, more, rest

        @locks.locked("last:{number}", lease_as="mine", timeout=5.0)
        async def last(number: int = 3, *, mine: holdfast.Lease | None = None) -> str:
            assert mine is not None
            return mine.name

        @locks.locked("only", lease_as="lease")
        async def only(lease: holdfast.Lease, /) -> str:
            return lease.name

        class Shop:
            @locks.locked("shop:{number}", lease_as="lease")
            async def sell(self, number: int, lease: holdfast.Lease) -> int:
                return lease.token

        assert await first(7, 8, 9, x=1) == ("first:7", 7, (8, 9), {"x": 1})
        assert (await last(), await last(4)) == ("last:3", "last:4")
        assert await only() == "only"
        assert await Shop().sell(1) < await Shop().sell(number=1)
        assert list(inspect.signature(first).parameters) == ["number", "more", "rest"]
        with pytest.raises(TypeError, match="leave it out"):
            await last(4, mine=None)
        with pytest.raises(TypeError, match="leave it out"):
            await first(7, lease=None)
        with pytest.raises(TypeError, match="missing"):
            await first()
        assert await locks.list() == []


@pytest.mark.parametrize(
    ("template", "lease_as", "says"),
    [
        ("x", "other", "names no parameter of the function; its parameters: number, rest, lease"),
        ("x", "rest", "names no parameter of the function"),
        ("x:{lease}", "lease", "no parameter of the function"),
        ("x", "a b", "the name of a parameter"),
        ("x", "", "the name of a parameter"),
        ("x", 7, "the name of a parameter"),
    ],
)
async def test_a_lease_cannot_be_given_by_such_a_parameter(
    template: str, lease_as: Any, says: str
) -> None:
    async with holdfast.connect("memory://") as locks:

        async def work(number: int, *rest: int, lease: holdfast.Lease) -> None:
            pytest.fail("it was called")

        with pytest.raises(holdfast.ConfigError, match=says):
            locks.locked(template, lease_as=lease_as)(work)


async def test_each_call_waits_for_its_own_lock_only() -> None:
    async with holdfast.connect("memory://") as locks:
        inside: list[int] = []
        leave: list[bool] = []

        @locks.locked("job:{number}", timeout=20.0)
        async def work(number: int) -> int:
            inside.append(number)
            await eventually(lambda: leave)
            return number

        jobs = [Job(work, 1), Job(work, 1), Job(work, 2)]
        await eventually(lambda: len(inside) == 2)

        async def waits() -> bool:
            return len((await locks.inspect("job:1")).waiters) == 1

        await eventually(waits)
        assert sorted(inside) == [1, 2]
        leave.append(True)
        assert sorted([await job.result() for job in jobs]) == [1, 1, 2]


async def test_a_lock_is_a_decorator_itself() -> None:
    async with holdfast.connect("memory://") as locks:
        place = Place(locks)

        @locks.lock("alone", timeout=5.0)
        async def alone() -> list[str]:
            return await place.held()

        @locks.multi(["b", "a"], timeout=5.0)
        async def both(number: int) -> tuple[int, list[str]]:
            return number, await place.held()

        @locks.rlock("again")
        async def again(depth: int) -> int:
            return 0 if depth == 0 else 1 + await again(depth - 1)

        @locks.rwlock("book").read()
        async def read() -> list[str]:
            return await place.held()

        assert await alone() == ["alone"]
        assert await both(7) == (7, ["a", "b"])
        assert await again(3) == 3
        assert await read() == ["book"]
        assert await place.held() == []

        @locks.lock("alone")
        async def fails() -> None:
            raise KeyError("its own")

        with pytest.raises(KeyError, match="its own"):
            await fails()
        assert await place.held() == []


async def test_a_busy_lock_raises_and_the_function_does_not_run() -> None:
    async with (
        holdfast.connect("memory://busy") as locks,
        holdfast.connect("memory://busy") as others,
    ):
        await others.lock("x:1").acquire()
        ran: list[int] = []

        @locks.locked("x:{number}", timeout=0)
        async def work(number: int) -> None:
            ran.append(number)

        with pytest.raises(holdfast.LockTimeout, match="x:1"):
            await work(1)
        await work(2)
        assert ran == [2]


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("x:{other}", "no parameter of the function"),
        ("x:{}", "not the name of a parameter"),
        ("x:{0}", "not the name of a parameter"),
        ("x:{number.__class__}", "not the name of a parameter"),
        ("x:{number[0]}", "not the name of a parameter"),
        ("x:{number!r}", "conversion or a format"),
        ("x:{number:>9}", "conversion or a format"),
        ("x:{number:{number}}", "conversion or a format"),
        ("x:{number", "cannot be used"),
        ("x:}", "cannot be used"),
        ("x:{rest}", "any number of arguments"),
    ],
)
async def test_a_bad_template_is_refused_at_once(template: str, says: str) -> None:
    async with holdfast.connect("memory://") as locks:

        async def work(number: int, *rest: int) -> None:
            pytest.fail("it was called")

        with pytest.raises(holdfast.ConfigError, match=says):
            locks.locked(template)(work)


async def test_bad_options_and_names_are_refused_at_once() -> None:
    async with holdfast.connect("memory://") as locks:

        async def work() -> None:
            pytest.fail("it was called")

        bad: Any = work
        with pytest.raises(holdfast.ConfigError, match="takes the name of a lock"):
            locks.locked(bad)
        with pytest.raises(holdfast.ConfigError, match="ttl"):
            locks.locked("x", ttl=0)
        with pytest.raises(holdfast.ConfigError, match="empty"):
            locks.locked("")
        with pytest.raises(holdfast.ConfigError, match="control character"):
            locks.locked("x\n")
        with pytest.raises(TypeError, match="no option"):
            locks.locked("x", tll=3.0)  # type: ignore[call-overload]


@pytest.mark.parametrize("value", [None, 1.5, b"x", object(), {1, 2}, Colour.RED, [1]])
async def test_an_argument_whose_text_may_differ_is_refused(value: object) -> None:
    async with holdfast.connect("memory://") as locks:

        @locks.locked("x:{value}")
        async def work(value: object) -> None:
            pytest.fail("it was called")

        with pytest.raises(holdfast.ConfigError, match="cannot be made from value="):
            await work(value)
        with pytest.raises(holdfast.ConfigError, match="control character"):
            await work("a\nb")


class Called:
    async def __call__(self, number: int) -> int:
        return number


async def test_what_can_be_called_is_taken() -> None:
    async with holdfast.connect("memory://") as locks:

        async def work(number: int, more: int) -> int:
            return number + more

        assert await locks.lock("x")(functools.partial(work, more=1))(2) == 3
        assert await locks.locked("x:{number}")(functools.partial(work, more=1))(2) == 3
        assert await locks.lock("x")(Called().__call__)(2) == 2


async def test_wrapped_functions_are_taken() -> None:
    async with holdfast.connect("memory://") as locks:

        async def work(number: int) -> int:
            return number

        @functools.wraps(work)
        async def around(number: int) -> int:
            return await work(number) + 1

        @functools.wraps(around)
        async def twice(number: int) -> int:
            return await around(number) + 1

        for function, result in ((around, 3), (twice, 4)):
            assert await locks.lock("x")(function)(2) == result
            assert await locks.locked("x:{number}")(function)(2) == result


class Entered:
    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[int]:
        yield 1


async def fine() -> None:
    return None


async def test_what_cannot_be_held_for_is_refused() -> None:
    async with holdfast.connect("memory://") as locks:

        async def stream() -> AsyncIterator[int]:
            yield 1

        @functools.wraps(fine)
        async def stream_around() -> AsyncIterator[int]:
            yield 1

        things: list[Any] = [stream, staticmethod(fine), classmethod(fine), int, 7, None, Place]  # type: ignore[arg-type]
        things += [asynccontextmanager(stream), asynccontextmanager(stream_around), Entered()]
        things += [functools.partial(asynccontextmanager(stream))]
        for thing in things:
            with pytest.raises(holdfast.ConfigError):
                locks.lock("x")(thing)
            with pytest.raises(holdfast.ConfigError):
                locks.locked("x")(thing)


async def test_a_function_that_goes_through_a_generator_is_taken() -> None:
    async with holdfast.connect("memory://") as locks:

        async def stream() -> AsyncIterator[bool]:
            yield (await locks.inspect("x")).held

        @functools.wraps(stream)
        async def collected() -> list[bool]:
            return [held async for held in stream()]

        assert await locks.lock("x")(collected)() == [True]


# unasync: aio-only
async def test_blocking_locks_refuse_what_an_asynchronous_generator_was_made_to() -> None:
    import holdfast as blocking

    async def stream() -> AsyncIterator[int]:
        yield 1

    with blocking.connect("memory://") as locks:
        for decorate in (locks.lock("x"), locks.locked("x")):
            with pytest.raises(blocking.ConfigError, match="made of a generator"):
                decorate(asynccontextmanager(stream))


async def test_a_plain_function_is_refused() -> None:
    async with holdfast.connect("memory://") as locks:

        def plain() -> int:
            return 1

        def generator() -> Any:
            yield 1

        functions: list[Any] = [plain, generator, functools.partial(plain)]
        for function in functions:
            with pytest.raises(holdfast.ConfigError, match=r"async def|generator"):
                locks.lock("x")(function)


async def test_blocking_locks_refuse_async_def() -> None:
    import holdfast as blocking

    async def work() -> None:
        return None

    with blocking.connect("memory://") as locks:
        for function in (work, functools.partial(work), Called()):
            with pytest.raises(blocking.ConfigError, match="async def"):
                locks.lock("x")(function)
            with pytest.raises(blocking.ConfigError, match="async def"):
                locks.locked("x")(function)


# unasync: end
