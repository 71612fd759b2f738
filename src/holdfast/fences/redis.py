"""A fence in the Redis that it protects: check and write are one script.

Beside a key `x` stands `{x}:holdfast-fence`, in the same slot of a cluster, which keeps the highest
token seen. It has no TTL: forgetting is what `prune` is for. What is forgotten raises the floors, by
which a key without a mark is measured; in a cluster each slot has floors of its own, so that a script
finds all it needs in one place. The client is yours, redis-py's blocking or asyncio one; with the
latter every verb is awaited.
"""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Sequence
from typing import Any

from .. import checks
from ..errors import ConfigError, GuaranteeError, StaleToken
from ..stores.redis.cluster import slot_of, tag_of
from . import floors, rules
from .fence import Fence, not_installed, refuse_high_floors
from .redis_keys import FLOORS, RESETS, mark_of, resource_key
from .redis_pruning import prune, reset_floors
from .redis_scripts import DELETE, SET, SET_PX, Script, script_for
from .redis_values import Request, Steps, parse_floor, parse_mark, text_of
from .rules import Credential, FencedLease, Mark, Token

KNOWN_LIMIT = 10_000
YOUNG = 1.0
"""Seconds after which a process makes the mark of a key young again, if its token does not change."""

Value = str | bytes | int | float


class RedisFence(Fence):
    """`RedisFence(client)`, with a client of redis-py: blocking or asyncio, one server or a cluster.

    A plain `SET` by somebody else is not stopped. A single-use fence needs a client that does not
    repeat commands (`retry=None`): the repetition would find the token used.
    """

    def __init__(self, client: Any, *, single_use: bool = False) -> None:
        super().__init__(single_use=single_use)
        execute = getattr(client, "execute_command", None)
        if execute is None or hasattr(client, "command_stack"):
            raise ConfigError(f"RedisFence takes a client of redis-py, not {type(client).__name__}")
        self._client = client
        self._execute = execute
        self._asynchronous = inspect.iscoroutinefunction(execute)
        self.cluster = hasattr(client, "get_node_from_key")
        self._scripts: dict[str, Script] = {}
        self._mode = "o" if single_use else "w"
        self._set_sha = script_for(SET).sha
        self._young: dict[str, float] = {}
        """When this process last made the mark of a key young."""

    # Verbs. Each returns a coroutine if the client is asynchronous.

    def set(self, key: str, value: Value, token: Token, *, ttl: float | None = None) -> Any:
        """`SET key value`, if no higher token has written to it; else raises `StaleToken`.

        `ttl` is in seconds. The mark stays when the value expires.
        """
        given = rules.writer(token)
        resource_key(key)
        if ttl is None:
            if not self._asynchronous:
                # The common case at once; all others step by step.
                mark = mark_of(key)
                self._refuse_split(key, mark)
                floors = self.floors_of(mark)
                credential = (given.token, given.lock, self._mode_of(key, given))
                try:
                    reply = self._execute(
                        "EVALSHA", self._set_sha, 3, mark, floors, key, *credential, value
                    )
                except Exception as error:
                    if type(error).__name__ != "NoScriptError":
                        raise
                else:
                    return self._explain(reply, key, given)
            return self._run(self._guarded(SET, key, given, (key,), (value,)))
        milliseconds = max(1, round(checks.ttl(ttl) * 1000))
        return self._run(self._guarded(SET_PX, key, given, (key,), (value, milliseconds)))

    def delete(self, key: str, token: Token) -> Any:
        """`DEL key`, on the same terms. The mark stays."""
        given = rules.writer(token)
        resource_key(key)
        return self._run(self._guarded(DELETE, key, given, (key,), ()))

    def run(
        self,
        script: str,
        resource: str,
        token: Token,
        keys: Sequence[str] = (),
        args: Sequence[Value] = (),
    ) -> Any:
        """Run a Lua script of your own, if the token passes: both are one atomic step.

        It sees its own `KEYS` and `ARGV`, and what it returns is answered. In a cluster all its keys
        must be in the slot of `resource`. When a reply is lost, redis-py sends it again: it must do no
        harm when it is run twice.
        """
        given = rules.writer(token)
        resource_key(resource)
        return self._run(self._guarded(script, resource, given, tuple(keys), tuple(args)))

    def guard(self, resource: str, token: Token) -> Any:
        """Lets this token pass, and remembers it. What you do next is another step: see `run`."""
        given = rules.credential(token)
        resource_key(resource)
        return self._run(self._guarded("", resource, given, (), ()))

    def highest(self, resource: str) -> Any:
        """Returns the highest token of a writer; 0 if none was seen."""
        return self._run(self._highest(resource_key(resource)))

    def reset(self, resource: str, *, by: str, to: int = 0) -> Any:
        """Forgets the highest token and the lock, and begins again at `to`; returns the old token.

        For when a store's tokens have fallen, or the key moved to another lock. Stop the writers
        first. It is kept in the list `holdfast-fence-resets`.
        """
        return self._run(self._reset(resource_key(resource), *rules.beginning(by, to)))

    def prune(self, older_than: float) -> Any:
        """Forgets marks of keys where no token was shown for so many seconds; returns how many.

        Old tokens are kept out all the same: what is forgotten counts as the least that a
        key new to this fence has seen; in a cluster, a key of the same slot. So give it longer than a
        holder goes without a write. It walks through all keys of the database.
        """
        return self._run(prune(self, rules.age(older_than)))

    def reset_floors(self, *, by: str, lock: str | FencedLease | None = None, to: int = 0) -> Any:
        """Sets what pruned keys have left behind, for one lock or for all, to `to`.

        For when a number that no store has granted was pruned, and shuts out everybody. Stop the
        writers first: until holders have written, old tokens may pass. It is kept in the list
        `holdfast-fence-resets`.
        """
        by, to = rules.beginning(by, to)
        return self._run(reset_floors(self, by, floors.lock_named(lock), to))

    def verify(self) -> Any:
        """Proves that it refuses, and that the server forgets nothing by itself.

        Raises `GuaranteeError` otherwise, and says why.
        """
        return self._run(self._verify())

    # What they do, step by step.

    def _guarded(
        self,
        body: str,
        resource: str,
        given: Credential,
        keys: tuple[Any, ...],
        args: tuple[Any, ...],
    ) -> Steps[Any]:
        script = self._scripts.get(body) or self._script(body)
        mark = mark_of(resource)
        if resource in keys:
            self._refuse_split(resource, mark)
        floors = self.floors_of(mark)
        count = 2 + len(keys)
        credential = (given.token, given.lock, self._mode_of(resource, given))
        command = ("EVALSHA", script.sha, count, mark, floors, *keys, *credential, *args)
        reply = yield Request(command, script.text)
        return self._explain(reply, resource, given)

    def _refuse_split(self, key: str, mark: str) -> None:
        """Refuses a key that a cluster keeps elsewhere than its mark: no script reaches both."""
        if self.cluster and "}" in key and slot_of(key.encode()) != slot_of(mark.encode()):
            raise ConfigError(
                f"the key {key!r} has a closing brace and no hash tag, so a cluster cannot keep its "
                "mark beside it: choose another name, or give it a tag, such as {order}:7"
            )

    def _mode_of(self, key: str, given: Credential) -> str:
        """Returns what the script is to do with a token; once in a while it makes the mark young."""
        mode = "r" if given.reader else self._mode
        now = time.monotonic()
        last = self._young.get(key)
        if last is not None and now < last + YOUNG:
            return mode
        if len(self._young) >= KNOWN_LIMIT:
            self._young.clear()
        self._young[key] = now
        return f"{mode}+"

    def _explain(self, reply: Any, resource: str, given: Credential) -> Any:
        """Returns the result of a guarded script. A list of three is a refusal."""
        if type(reply) is not list:
            return reply
        if len(reply) == 1:  # what a script of the user's answered
            return reply[0]
        highest, lock, reader = reply
        seen = Mark(int(highest), text_of(lock), int(reader))
        refused = rules.refusal(resource, seen, given, self.single_use)
        raise refused or GuaranteeError(f"the fence at {resource!r} contradicts itself: {seen}")

    def _script(self, body: str) -> Script:
        if len(self._scripts) > 1000:
            self._scripts.clear()
        made = self._scripts[body] = script_for(body)
        return made

    def _highest(self, resource: str) -> Steps[int]:
        mark = parse_mark((yield Request(("GET", mark_of(resource)))))
        return mark.highest

    def _reset(self, resource: str, by: str, to: int) -> Steps[int]:
        name = mark_of(resource)
        was = parse_mark((yield Request(("GET", name))))
        entry = {"at": time.time(), "by": by, "key": resource, "token": was.highest}
        yield Request(("RPUSH", RESETS, json.dumps({**entry, "lock": was.lock})))
        yield Request(("SET", name, f"{to}/0 {round(time.time() * 1000)} "))
        return was.highest

    def nodes(self) -> Steps[list[Any]]:
        """Returns the servers to walk through; None stands for the only one."""
        if not self.cluster:
            return [None]
        yield Request(
            ("EXISTS", FLOORS)
        )  # an asyncio client knows them once it has asked something
        nodes: list[Any] = self._client.get_primaries()
        return nodes

    def floors_of(self, mark: str) -> str:
        """Returns the key of the floors that count for the key of a mark."""
        if not self.cluster:
            return FLOORS
        return f"{FLOORS}:{{{tag_of(slot_of(mark.encode())).decode()}}}"

    def _verify(self) -> Steps[None]:
        for node in (yield from self.nodes()):
            info = yield Request(("INFO", "memory"), node=node)
            policy = info.get("maxmemory_policy", "") if isinstance(info, dict) else ""
            if policy.startswith("allkeys"):
                raise not_installed(
                    "this Redis", f"its maxmemory-policy is {policy}, which may drop any mark"
                )
        probe = f"holdfast probe {os.urandom(6).hex()}"
        floor = parse_floor((yield Request(("HGET", self.floors_of(mark_of(probe)), "*"))))
        refuse_high_floors("this Redis", {"*": floor})
        yield Request(("SET", mark_of(probe), "0/0 0 "))
        above = 2**62
        yield from self._guarded("", probe, Credential(above), (), ())
        try:
            yield from self._guarded("", probe, Credential(above - 1), (), ())
        except StaleToken:
            return
        finally:
            yield Request(("DEL", mark_of(probe)))
        raise not_installed("this Redis", "it let an older token pass")

    def _run(self, steps: Steps[Any]) -> Any:
        return self._run_async(steps) if self._asynchronous else self._run_blocking(steps)

    def _run_blocking(self, steps: Steps[Any]) -> Any:
        try:
            request = next(steps)
            while True:
                try:
                    try:
                        reply = self._execute(*request.command, **_at(request.node))
                    except Exception as error:
                        if not _unknown_script(error, request):
                            raise
                        reply = self._execute("EVAL", request.text, *request.command[2:])
                except Exception as error:
                    request = steps.throw(error)  # for what they have to clean up
                else:
                    request = steps.send(reply)
        except StopIteration as stop:
            return stop.value

    async def _run_async(self, steps: Steps[Any]) -> Any:
        try:
            request = next(steps)
            while True:
                try:
                    try:
                        reply = await self._execute(*request.command, **_at(request.node))
                    except Exception as error:
                        if not _unknown_script(error, request):
                            raise
                        reply = await self._execute("EVAL", request.text, *request.command[2:])
                except Exception as error:
                    request = steps.throw(error)  # for what they have to clean up
                else:
                    request = steps.send(reply)
        except StopIteration as stop:
            return stop.value


def _at(node: Any) -> dict[str, Any]:
    return {} if node is None else {"target_nodes": node}


def _unknown_script(error: Exception, request: Request) -> bool:
    return bool(request.text) and type(error).__name__ == "NoScriptError"
