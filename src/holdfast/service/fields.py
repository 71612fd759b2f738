"""The fields of requests: how each is checked, and how `/openapi.json` describes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .. import checks
from ..errors import ConfigError
from ..fences.rules import MAX_TOKEN
from .field_checks import (
    KINDS,
    MAX_HOST,
    MAX_PID,
    OWNER_PATTERN,
    boolean,
    fairness,
    kind,
    label,
    owner,
    seconds,
    text,
    whole,
)
from .problems import Problem

Schema = dict[str, Any]

REQUIRED: Any = object()
"""The default of a field that has to be there."""

MAX_NUMBER = 2**63 - 1
MAX_CHANGE = 2**80 - 1
"""The highest number of an election's change: on Redlock it is a token, and 16 bits more."""


class Field(NamedTuple):
    """One field of a body, or of a query."""

    name: str
    check: Callable[[Any], Any]
    """Returns the value as the service uses it; raises `ConfigError`."""
    schema: Schema
    default: Any = REQUIRED
    text: str = ""


Fields = tuple[Field, ...]


# The fields.


def _object(fields: Fields) -> Schema:
    """Returns the schema of an object with these fields."""
    schema: Schema = {"type": "object", "properties": {}, "additionalProperties": False}
    for field in fields:
        described = dict(field.schema)
        if field.text:
            described["description"] = field.text
        if field.default is not REQUIRED and field.default is not None:
            described["default"] = field.default
        schema["properties"][field.name] = described
    required = [field.name for field in fields if field.default is REQUIRED]
    if required:
        schema["required"] = required
    return schema


object_schema = _object

_CONTROL = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
NAME_SCHEMA: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": checks.MAX_NAME_BYTES,
    "pattern": f"^[^{_CONTROL}]+$",
    "description": "at most 1024 bytes of UTF-8, without control characters",
}
_TEXT: Schema = {
    "type": "string",
    "maxLength": checks.MAX_LABEL,
    "pattern": f"^[^{_CONTROL}]*$",
}
_OWNER_SCHEMA: Schema = {"type": "string", "pattern": OWNER_PATTERN}
_TTL: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": checks.MAX_TTL}


def _integer(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _seconds(least: float, most: float) -> Schema:
    return {"type": "number", "minimum": least, "maximum": most}


NAME = Field("name", checks.lock_name, NAME_SCHEMA, text="the lock")
OWNER = Field("owner", owner, _OWNER_SCHEMA, text="the id of the attempt")
NEW_OWNER = Field(
    "owner",
    owner,
    _OWNER_SCHEMA,
    None,
    "the id of this attempt, never used before; made by the service if there is none",
)
TTL = Field("ttl", checks.ttl, _TTL, text="seconds for which the store keeps the lease from now on")
FIRST_TTL = TTL._replace(default=30.0)
KIND = Field(
    "kind",
    kind,
    {"type": "string", "enum": list(KINDS)},
    None,
    "by default a lock, or a semaphore if there is a capacity",
)
CAPACITY = Field(
    "capacity",
    whole("capacity", 1, checks.MAX_CAPACITY),
    _integer(1, checks.MAX_CAPACITY),
    1,
    "how much of the lock there is: the permits of a semaphore",
)
WEIGHT = Field(
    "weight",
    whole("weight", 1, checks.MAX_CAPACITY),
    _integer(1, checks.MAX_CAPACITY),
    1,
    "how much of the capacity this holder takes; a writer takes all",
)
LABEL = Field(
    "label",
    label,
    {
        "anyOf": [
            _TEXT,
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "host": {**_TEXT, "maxLength": MAX_HOST},
                    "pid": _integer(0, MAX_PID),
                    "text": _TEXT,
                },
            },
        ]
    },
    None,
    "what people are shown of the holder",
)
FAIR = Field(
    "fair",
    fairness,
    {"type": ["boolean", "null"]},
    None,
    "true insists on first come, first served; false lets this attempt take a free lock",
)
RENEW = Field(
    "renew",
    boolean("renew"),
    {"type": "boolean"},
    True,
    "false: the lease ends with its TTL, whatever the store keeps alive beside it",
)
DELAY = Field(
    "delay",
    seconds("delay", 0, checks.MAX_TTL),
    _seconds(0, checks.MAX_TTL),
    0.0,
    "the last seconds of `ttl`, in which the lock is closed and the caller no longer uses it",
)
QUEUE = Field(
    "queue",
    boolean("queue"),
    {"type": "boolean"},
    False,
    "without `wait`: join the queue, and keep the place by renewing",
)
SESSION = Field(
    "session",
    owner,
    _OWNER_SCHEMA,
    None,
    "the session whose wake-ups tell of this owner, if its id does not begin with it",
)
DOUBTFUL = Field(
    "doubtful",
    boolean("doubtful"),
    {"type": "boolean"},
    False,
    "an acquire of this owner was not answered, and may still arrive: it is refused then",
)
GIVER = Field("giver", owner, _OWNER_SCHEMA, text="the owner id that the lease is taken over from")
TOKEN = Field("token", whole("token", 1, MAX_TOKEN), _integer(1, MAX_TOKEN), text="a fencing token")
LESS_WEIGHT = WEIGHT._replace(default=None, text="less than before: a writer becomes a reader")
NEW_TEXT = Field("text", text, _TEXT, None, "another text of the label: an election's value")


PREFIX = Field(
    "prefix",
    checks.prefix,
    {**NAME_SCHEMA, "minLength": 0, "pattern": f"^[^{_CONTROL}]*$"},
    "",
    "how the names of the locks begin",
)
LOCK = Field("lock", checks.lock_name, NAME_SCHEMA, None, "the lock that the token is of")
SLOT = Field(
    "slot",
    whole("slot", 0, MAX_NUMBER),
    _integer(0, MAX_NUMBER),
    None,
    "the slot of the semaphore `lock` that the token is of",
)
READS = Field(
    "reads",
    boolean("reads"),
    {"type": "boolean"},
    False,
    "whether the token is a reader's, who is compared with writers alone, and does not write",
)
AFTER_NUMBER = Field(
    "after",
    whole("after", 0, MAX_CHANGE),
    _integer(0, MAX_CHANGE),
    0,
    "the number of the last change that is known; 0 asks for the latest change alone",
)
CURSOR = Field(
    "cursor",
    checks.label,
    {**_TEXT, "maxLength": 64},
    "",
    "the id of the last event that is known; or the header Last-Event-ID",
)
LOOKS = Field(
    "looks",
    boolean("looks"),
    {"type": "boolean"},
    False,
    "true: an event `look` also tells of each look at the store at which nothing had happened, or "
    "which failed, and when the store was seen last",
)
TOGETHER = Field(
    "together",
    boolean("together"),
    {"type": "boolean"},
    False,
    "true: what one look at the store finds is one event `events`, a list of pairs of name and data",
)
LIST = Field(
    "list",
    boolean("list"),
    {"type": "boolean"},
    False,
    "true: the stream begins with all locks, those that are waited for most in its first event and the "
    "others in events `more`; from then on events tell what changes",
)
TOKEN_ABOVE = Field(
    "token_above",
    checks.token_above,
    {"type": "integer", "minimum": 0, "maximum": checks.MAX_TOKEN_ABOVE},
    0,
    "what a fence has seen: every later token is higher",
)
ACTOR = Field("actor", checks.label, _TEXT, "", "who does it, for the audit")


def limit_ttl(given: Fields, longest: float) -> Fields:
    """Returns these fields, in which no TTL may be longer than that."""

    def check(value: object) -> float:
        seconds = checks.ttl(value)
        if seconds > longest:
            raise ConfigError(f"this service gives a ttl of at most {longest:g} s")
        return seconds

    schema = {**_TTL, "maximum": longest}
    return tuple(
        one._replace(check=check, schema=schema) if one.name == "ttl" else one for one in given
    )


def wait_field(longest: float, what: str = "the lock") -> Field:
    return Field(
        "wait",
        seconds("wait", 0, longest),
        _seconds(0, longest),
        0.0,
        f"seconds to wait for {what}; the request is held",
    )


# Reading.


class Form:
    """The fields of an object, and how one is read."""

    __slots__ = ("_checks", "_defaults", "_required", "fields")

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self._checks = {one.name: one.check for one in fields}
        self._defaults = {one.name: one.default for one in fields}
        self._required = [one.name for one in fields if one.default is REQUIRED]

    def read(self, given: object, where: str = "the body") -> dict[str, Any]:
        """Returns the values of the fields in `given`; raises 422 and says which of them is wrong."""
        if type(given) is not dict:
            raise Problem("bad-input", f"{where} must be a JSON object, not {given!r:.40}")
        checks, values = self._checks, self._defaults.copy()
        for name, value in given.items():
            check = checks.get(name)
            if check is None:
                raise self._unknown(given, where)
            try:
                values[name] = check(value)
            except ConfigError as error:
                raise Problem("bad-input", str(error), field=name) from None
        for name in self._required:
            if name not in given:
                raise Problem("bad-input", f"{where} has no {name!r}", field=name)
        return values

    def _unknown(self, given: dict[str, Any], where: str) -> Problem:
        unknown = min(given.keys() - self._checks.keys())
        known = ", ".join(self._checks) or "none"
        return Problem(
            "bad-input", f"{where} has an unknown field {unknown!a:.80}; there are: {known}"
        )


def read_list(what: str, form: Form, most: int) -> Callable[[object], list[dict[str, Any]]]:
    """Returns the check of a list of objects with the fields of `form`."""

    def check(value: object) -> list[dict[str, Any]]:
        if not isinstance(value, list):
            raise ConfigError(f"{what} must be a list, not {value!r:.40}")
        if not 1 <= len(value) <= most:
            raise ConfigError(f"{what} must have from 1 to {most} items, not {len(value)}")
        return [form.read(one, f"{what}[{i}]") for i, one in enumerate(value)]

    return check


def list_field(name: str, fields: Fields, most: int) -> Field:
    schema = {"type": "array", "minItems": 1, "maxItems": most, "items": object_schema(fields)}
    return Field(name, read_list(name, Form(*fields), most), schema)


def read_query(form: Form, given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Returns the values of a query; raises 422 and says which of them is wrong."""
    by_name: Mapping[str, Field] = {field.name: field for field in form.fields}
    typed: dict[str, Any] = {}
    for name, value in given:
        field = by_name.get(name)
        if field is not None and name in typed:
            raise Problem("bad-input", f"the query has {name!r} twice", field=name)
        typed[name] = value if field is None else _typed(field, value)
    return form.read(typed, "the query")


_NUMBER = re.compile(r"-?\d{1,25}(\.\d{1,19})?([eE][+-]?\d{1,3})?\Z", re.ASCII)


def _typed(field: Field, value: str) -> Any:
    """Returns a text of the query as the type that its field has."""
    if field.schema.get("type") == "boolean":
        return {"true": True, "false": False}.get(value, value)
    if field.schema.get("type") in ("number", "integer"):
        if not _NUMBER.match(value):
            return value
        return int(value) if value.lstrip("-").isdigit() else float(value)
    return value
