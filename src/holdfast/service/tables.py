"""The table of operations of a service, with its own limits in it."""

from __future__ import annotations

from .. import checks
from . import (
    about,
    batches,
    chaos_report,
    elections,
    events,
    fences,
    fields,
    health,
    locks,
    metrics,
    openapi,
    wakeups,
)
from .authority import ADMIN, HOLD
from .field_checks import whole
from .fields import Field, Fields, Form, limit_ttl, list_field, wait_field
from .operations import Operation
from .settings import Settings

LONGEST_PAGE = 1000


def operations_of(settings: Settings) -> list[Operation]:
    """Returns all operations, those that are asked for most often first."""
    return [*_of_one(settings), *_of_several(settings), *_of_the_rest(settings)]


_ASK: Fields = (
    fields.NEW_OWNER,
    fields.FIRST_TTL,
    fields.WEIGHT,
    fields.CAPACITY,
    fields.KIND,
    fields.FAIR,
    fields.RENEW,
    fields.DELAY,
    fields.LABEL,
)
"""The fields with which a lock is asked for."""
_LOCK = "/v1/locks/{name}"


def _of_one(settings: Settings) -> list[Operation]:
    """Returns the verbs of one lock."""
    wait = wait_field(settings.longest_wait)
    ask = limit_ttl(_ASK, settings.longest_ttl)
    renewal = Form(*limit_ttl((fields.OWNER, fields.TTL), settings.longest_ttl))
    return [
        Operation(
            "acquire",
            "POST",
            f"{_LOCK}/acquire",
            "Acquire a lock, or wait for it",
            locks.acquire,
            Form(*ask, wait, fields.QUEUE, fields.SESSION),
            role=HOLD,
            answers={200: "Grant", 202: "Place"},
            problems=(409, 410),
        ),
        Operation(
            "release",
            "POST",
            f"{_LOCK}/release",
            "Release a lock, or leave its queue",
            locks.release,
            Form(fields.OWNER, fields.DOUBTFUL),
            role=HOLD,
            answers={200: "Released"},
            problems=(410,),
        ),
        Operation(
            "renew",
            "POST",
            f"{_LOCK}/renew",
            "Renew a lease, or a place in the queue",
            locks.renew,
            renewal,
            role=HOLD,
            answers={200: "Grant", 202: "Place"},
            problems=(410,),
        ),
        Operation(
            "amend",
            "POST",
            f"{_LOCK}/amend",
            "Give a lease less weight, or another text",
            locks.amend,
            Form(fields.OWNER, fields.LESS_WEIGHT, fields.NEW_TEXT),
            role=HOLD,
            answers={200: "Nothing"},
            problems=(410,),
        ),
        Operation(
            "detach",
            "POST",
            f"{_LOCK}/detach",
            "Let a lease last though nobody renews it",
            locks.detach,
            renewal,
            role=HOLD,
            answers={200: "Nothing"},
            problems=(410,),
        ),
        Operation(
            "adopt",
            "POST",
            f"{_LOCK}/adopt",
            "Take over a lease, with a new token",
            locks.adopt,
            Form(*ask, fields.GIVER),
            role=HOLD,
            answers={200: "Grant"},
            problems=(410,),
        ),
        Operation(
            "getLock",
            "GET",
            _LOCK,
            "See who holds a lock, and who waits for it",
            locks.look,
            answers={200: "Lock"},
        ),
        Operation(
            "forceRelease",
            "DELETE",
            _LOCK,
            "Take a lock away from its holders",
            locks.force,
            query=Form(fields.ACTOR, fields.TOKEN_ABOVE),
            role=ADMIN,
            answers={200: "Forced"},
        ),
    ]


def _of_several(settings: Settings) -> list[Operation]:
    """Returns what is asked about several locks at once."""
    most = settings.most_claims
    ask = limit_ttl(_ASK, settings.longest_ttl)
    claim = limit_ttl((fields.NAME, fields.OWNER, fields.TTL), settings.longest_ttl)
    pair: Fields = (fields.NAME, fields.OWNER, fields.DOUBTFUL)
    limit = Field(
        "limit",
        whole("limit", 1, LONGEST_PAGE),
        {"type": "integer", "minimum": 1, "maximum": LONGEST_PAGE},
        100,
        "the most locks in one page",
    )
    after = fields.PREFIX._replace(
        name="after", text="the last name of the page before: `next` of its answer"
    )
    return [
        Operation(
            "renewAll",
            "POST",
            "/v1/renew",
            "Renew leases and places in one request",
            batches.renew_all,
            Form(list_field("claims", claim, most)),
            answers={200: "Outcomes"},
        ),
        Operation(
            "acquireAll",
            "POST",
            "/v1/acquire",
            "Acquire all of several locks, or none",
            batches.acquire_all,
            Form(list_field("locks", (fields.NAME, *ask), checks.MAX_NAMES)),
            answers={200: "Grants"},
            problems=(409, 410),
        ),
        Operation(
            "releaseAll",
            "POST",
            "/v1/release",
            "Release several locks",
            batches.release_all,
            Form(list_field("locks", pair, most)),
            answers={200: "ReleasedAll"},
        ),
        Operation(
            "listLocks",
            "GET",
            "/v1/locks",
            "List the locks that are held or waited for",
            batches.list_locks,
            query=Form(fields.PREFIX, after, limit),
            answers={200: "Locks"},
        ),
    ]


def _of_the_rest(settings: Settings) -> list[Operation]:
    """Returns elections, fences, streams, and what can be known of the service."""
    changes = "/v1/elections/{name}/changes"
    return [
        Operation(
            "getChanges",
            "GET",
            changes,
            "See who leads, or wait for the next change",
            elections.changes,
            query=Form(
                fields.AFTER_NUMBER,
                wait_field(settings.longest_wait, "a change"),
                fields.NEW_OWNER._replace(text="an id of the observer, for `/v1/wakeups`"),
                fields.SESSION,
            ),
            answers={200: "Changes"},
        ),
        Operation(
            "endChanges",
            "DELETE",
            changes,
            "Tell that an observer has gone",
            elections.unobserve,
            query=Form(fields.OWNER),
            answers={200: "Nothing"},
        ),
        Operation(
            "wakeups",
            "GET",
            "/v1/wakeups",
            "Hear which owners of a session should ask",
            None,
            query=Form(
                fields.SESSION._replace(default=fields.REQUIRED, text="how its owner ids begin"),
            ),
            stream=wakeups.wakeups,
        ),
        Operation(
            "events",
            "GET",
            "/v1/events",
            "Hear what happens to locks",
            None,
            query=Form(fields.PREFIX, fields.CURSOR, fields.LOOKS, fields.LIST, fields.TOGETHER),
            stream=events.events,
        ),
        Operation(
            "history",
            "GET",
            f"{_LOCK}/history",
            "See what happened to a lock lately",
            events.history,
            answers={200: "History"},
        ),
        Operation(
            "checkFence",
            "POST",
            "/v1/fences/{resource}/check",
            "Show a fencing token to the fence of a resource",
            fences.check,
            Form(fields.TOKEN, fields.LOCK, fields.SLOT, fields.READS),
            role=HOLD,
            answers={200: "Highest"},
            problems=(409,),
        ),
        Operation(
            "guarantees",
            "GET",
            "/v1/guarantees",
            "See what the store promises",
            about.guarantees,
            answers={200: "Guarantees"},
        ),
        Operation(
            "doctor",
            "GET",
            "/v1/doctor",
            "See what stands well with the store, and what does not",
            about.doctor,
            answers={200: "Findings"},
        ),
        Operation(
            "chaosReport",
            "GET",
            "/v1/chaos-report",
            "Read the report of `holdfast chaos` that the service was started with",
            chaos_report.chaos_report,
            answers={200: "Text"},
            problems=(404,),
            media_type="text/html",
        ),
        Operation(
            "deadlocks",
            "GET",
            "/v1/deadlocks",
            "See who waits for each other in a circle",
            about.deadlocks,
            answers={200: "Deadlocks"},
        ),
        Operation(
            "me",
            "GET",
            "/v1/me",
            "See what the caller may do",
            about.me,
            answers={200: "Me"},
        ),
        Operation(
            "health",
            "GET",
            "/healthz",
            "Tell whether the service runs",
            health.health,
            answers={200: "Health"},
            namespaced=False,
            public=True,
        ),
        Operation(
            "readiness",
            "GET",
            "/readyz",
            "Tell whether the store answers",
            health.readiness,
            answers={200: "Health"},
            namespaced=False,
            public=True,
        ),
        Operation(
            "metrics",
            "GET",
            "/metrics",
            "Read the metrics, in the format of Prometheus",
            metrics.metrics,
            answers={200: "Text"},
            namespaced=False,
            media_type="text/plain",
        ),
        Operation(
            "openapi",
            "GET",
            "/openapi.json",
            "Describe the service",
            openapi.describe,
            answers={200: "Nothing"},
            namespaced=False,
            public=True,
        ),
    ]
