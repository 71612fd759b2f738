"""`/v1/fences/{resource}/check`: a fence as a service, kept in the store of the operator.

It is the fence of `holdfast fence check`: for resources that cannot compare tokens by themselves. The
check is a step of its own, so a writer that is frozen between the check and the write still writes
late.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from ..errors import BackendUnavailable, ConfigError, StaleToken
from ..fences.http import RequestToken
from ..fences.places import NoFence, guard
from ..fences.rules import OTHER_LOCK, Token, credential, slot_lock
from .answers import Answer
from .authority import READ
from .call import Call
from .problems import Problem


async def check(call: Call) -> Answer:
    """Shows a token to the fence."""
    service, resource, number = call.service, call.name, call.body["token"]
    lock, slot = call.body["lock"], call.body["slot"]
    identity = ""
    if lock is not None:
        call.require(READ, lock)
        # As a lease of this store shows it: with the realm that its tokens are counted in.
        identity = f"{call.store.realm}/{lock}"
        if slot is not None:
            identity = slot_lock(identity, slot)
    elif slot is not None:
        raise ConfigError("slot is that of a semaphore: name it by lock")
    reads = call.body["reads"]
    token: Token = RequestToken(number, identity, reads) if identity or reads else number
    credential(token)  # what could never pass is refused before anything is sent
    url, patience = service.fence_url(), service.settings.patience
    give_up = monotonic() + patience
    silent = BackendUnavailable(f"the fence of {resource!r} did not answer within {patience:g} s")

    def guard_in_time() -> None:
        if monotonic() >= give_up:  # nobody waits any more, and others need the thread
            raise silent
        guard(url, resource, token)

    try:
        async with asyncio.timeout(patience):
            await service.fence_worker().call(guard_in_time)
    except TimeoutError:
        raise silent from None
    except OSError as error:
        if isinstance(error, BackendUnavailable):
            raise
        # Its driver could not even be loaded: there is no descriptor left, perhaps.
        said = f"the fence of {resource!r} cannot be asked: {error.strerror or error}"
        raise BackendUnavailable(said) from error
    except NoFence as error:
        raise Problem("guarantee", str(error)) from None
    except StaleToken as error:
        # Which other lock a resource belongs to is not for everybody who may use the resource.
        other = error.reason == OTHER_LOCK
        detail = f"the fence of {resource!r} refused the token: it is of another lock"
        raise Problem(
            "stale-token",
            detail if other else str(error),
            resource=resource,
            token=number,
            highest=error.highest,
            reason=error.reason,
        ) from None
    return Answer(200, {"highest": number})
