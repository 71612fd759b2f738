"""`/openapi.json`: the service in the words of OpenAPI 3.1, from the tables that read requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import __version__
from .answers import Answer, dumps
from .authority import Everything
from .call import Call
from .field_checks import OWNER_PATTERN
from .fields import MAX_CHANGE, MAX_NUMBER, NAME_SCHEMA, REQUIRED, Field, Schema, object_schema
from .operations import Operation
from .problems import KINDS, MEDIA_TYPE


def _shape(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


_TEXT: Schema = {"type": "string"}
_SECONDS: Schema = {"type": "number", "minimum": 0}
_TOKEN: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_NUMBER}
_OWNER: Schema = {"type": "string", "pattern": OWNER_PATTERN}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_LABEL = _shape({"host": _TEXT, "pid": _COUNT, "text": _TEXT})

SCHEMAS: dict[str, Schema] = {
    "Grant": _shape(
        {
            "name": _TEXT,
            "owner": _OWNER,
            "state": {"const": "held"},
            "token": _TOKEN,
            "ttl": _SECONDS,
            "remaining": _SECONDS,
            "waited": _SECONDS,
            "age": _SECONDS,
        },
        {"slot": _COUNT, "handed": _FLAG},
    ),
    "Place": _shape(
        {
            "name": _TEXT,
            "owner": _OWNER,
            "state": {"const": "waiting"},
            "remaining": _SECONDS,
            "age": _SECONDS,
        }
    ),
    "Released": _shape({"released": {"const": True}}),
    "Nothing": {"type": "object"},
    "Participant": _shape(
        {
            "owner": _TEXT,
            "label": _LABEL,
            "token": _TOKEN,
            "since": {"type": "number"},
            "remaining": _SECONDS,
            "weight": _COUNT,
        },
        {"slot": _COUNT, "ttl": _SECONDS},
    ),
    "Lock": _shape(
        {
            "name": _TEXT,
            "kind": _TEXT,
            "capacity": _COUNT,
            "token": _TOKEN,
            "holders": _list(_ref("Participant")),
            "waiters": _list(_ref("Participant")),
            "out": _list(_TEXT),
        }
    ),
    "Locks": _shape({"locks": _list(_ref("Lock")), "at": {"type": "number"}}, {"next": _TEXT}),
    "Forced": _shape({"released": _FLAG, "token": _TOKEN}),
    "Outcomes": _shape(
        {
            "outcomes": _list(
                _shape(
                    {"state": {"enum": ["held", "waiting", "gone", "unknown"]}, "owner": _OWNER},
                    {"token": _TOKEN, "ttl": _SECONDS, "remaining": _SECONDS, "age": _SECONDS},
                )
            )
        }
    ),
    "Grants": _shape({"grants": _list(_ref("Grant"))}),
    "ReleasedAll": _shape({"released": _list(_FLAG)}),
    "Changes": _shape(
        {
            "changes": _list(
                _shape(
                    {
                        "number": {**_TOKEN, "maximum": MAX_CHANGE},
                        "token": _TOKEN,
                        "owner": _TEXT,
                        "label": _LABEL,
                        "since": {"type": "number"},
                    }
                )
            ),
            "remaining": _SECONDS,
        }
    ),
    "Highest": _shape({"highest": _TOKEN}),
    "Guarantees": _shape(
        {
            "store": _TEXT,
            "consistency": _TEXT,
            "fair": _FLAG,
            "safe_for": _list(_TEXT),
            "one_step": _FLAG,
            "heartbeat": _SECONDS,
            "claim_window": _SECONDS,
            "namespace": _TEXT,
        }
    ),
    "Findings": _shape(
        {
            "findings": _list(
                _shape({"level": _TEXT, "check": _TEXT, "what": _TEXT, "why": _TEXT, "mend": _TEXT})
            ),
            "age": _SECONDS,
        }
    ),
    "Deadlocks": _shape({"deadlocks": _list({"type": "object"})}),
    "History": _shape({"events": _list({"type": "object"}), "since": _SECONDS}),
    "Me": _shape({"caller": _TEXT}),
    "Health": _shape({"status": _TEXT}),
    "Text": _TEXT,
    "Problem": _shape(
        {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT},
        {
            "name": _TEXT,
            "owner": _TEXT,
            "token": _TOKEN,
            "field": _TEXT,
            "highest": _TOKEN,
            "holders": _list(_ref("Participant")),
        },
    ),
}
"""The answers, by the names that operations have for them."""

_PATTERN = NAME_SCHEMA["pattern"].removeprefix("^").removesuffix("+$")
IN_PATH: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": NAME_SCHEMA["maxLength"],
    "pattern": f"^(?!~){_PATTERN}+$",
}
"""A name in a path, as a client of OpenAPI encodes it: one that begins with ~ is given otherwise."""

COMMON = (400, 401, 403, 404, 429, 503)
"""The statuses of problems that every operation which is not public may have."""


def document(operations: Sequence[Operation], namespaces: Sequence[str]) -> dict[str, Any]:
    """Returns the description of a service that has these operations."""
    paths: dict[str, Any] = {}
    for operation in operations:
        described = _operation(operation, namespaces)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "summary": "Distributed locks with fencing tokens",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(operation: Operation, namespaces: Sequence[str]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = []
    if operation.parameter:
        described = "percent-encoded UTF-8; or ~ and the hexadecimal digits of its UTF-8"
        parameters.append(
            {
                "name": operation.parameter,
                "in": "path",
                "required": True,
                "description": described,
                "schema": {
                    key: value for key, value in NAME_SCHEMA.items() if key != "description"
                },
            }
        )
    parameters += [_parameter(field) for field in operation.query.fields]
    if operation.namespaced:
        schema = {"type": "string", "enum": list(namespaces)} if namespaces else _TEXT
        parameters.append({"name": "namespace", "in": "query", "schema": schema})
    found: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": _responses(operation),
    }
    if operation.body is not None:
        schema = object_schema(operation.body.fields)
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    if operation.public:
        found["security"] = []
    return found


def _parameter(field: Field) -> dict[str, Any]:
    found: dict[str, Any] = {"name": field.name, "in": "query", "schema": field.schema}
    if field.default is REQUIRED:
        found["required"] = True
    if field.text:
        found["description"] = field.text
    return found


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, name in operation.answers.items():
        content = {operation.media_type: {"schema": _ref(name)}}
        responses[str(status)] = {"description": operation.summary, "content": content}
    if operation.stream is not None:
        content = {"text/event-stream": {"schema": _TEXT}}
        responses["200"] = {"description": operation.summary, "content": content}
    problems = set(operation.problems)
    problems |= {503} if operation.public else set(COMMON)
    if operation.body is not None:
        problems |= {413, 415, 422}
    elif not operation.public:
        problems.add(422)
    for status in sorted(problems):
        title = next(kind.title for kind in KINDS.values() if kind.status == status)
        content = {MEDIA_TYPE.decode(): {"schema": _ref("Problem")}}
        responses[str(status)] = {"description": title, "content": content}
    return responses


async def describe(call: Call) -> Answer:
    """Describes the service."""
    service = call.service
    if service.described is None:
        # Which namespaces there are is for those who may use them, and anybody may read this.
        known = isinstance(service.authority, Everything)
        found = document(service.operations, service.settings.namespaces if known else ())
        service.described = dumps(found).encode()
    return Answer(200, service.described)
