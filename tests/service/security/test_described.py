"""`/openapi.json` of a service with tokens: all that is asked of it, and nothing that fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import given
from schemathesis import GenerationMode

import holdfast.service.page as page
from service.fuzzing import FEW
from service.security.served import Served

MENTIONED = re.compile(r"\bv1/[a-z-]+")
ROOT = Path(__file__).parents[3]


def described(served: Served) -> dict[str, Any]:
    with served.as_() as client:
        found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def mentioned() -> Iterator[tuple[str, str]]:
    """Yields each first part of a path that our page, our client or our documents know, and where."""
    static = Path(str(page.__file__)).parent / "static"
    client = ROOT / "src" / "holdfast" / "stores" / "http"
    pages = [ROOT / "docs" / "service.md", ROOT / "docs" / "service-security.md"]
    for file in (*static.glob("*.js"), *client.rglob("*.py"), *pages):
        for found in MENTIONED.findall(file.read_text(encoding="utf-8")):
            yield found, file.name


def test_every_path_that_is_used_is_described(served: Served) -> None:
    known = {"/".join(path.split("/")[1:3]) for path in described(served)["paths"]}
    asked = list(mentioned())
    assert len(asked) > 20
    for path, where in asked:
        assert path in known, where


def test_every_operation_that_answers_is_described(served: Served) -> None:
    paths = described(served)["paths"]
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE")
    with served.as_(served.token("read")) as client:
        for path, operations in paths.items():
            url = path.replace("{name}", "a").replace("{resource}", "a")
            allowed = client.options(url).headers["allow"].split(", ")
            assert {one.lower() for one in allowed} & {one.lower() for one in methods} == set(
                operations
            ), path


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", ["beginSession", "endSession"])
def test_a_log_in_is_answered_as_described(
    served: Served, operation: str, mode: GenerationMode
) -> None:
    found = schemathesis.openapi.from_dict(described(served)).find_operation_by_id(operation)
    if mode.is_negative and not found.body:
        return  # nothing that could be wrong

    @FEW
    @given(case=found.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        answer = case.call(base_url=served.url)
        case.validate_response(answer, checks=[schemathesis.checks.not_a_server_error])
        assert str(answer.status_code) in found.definition.raw["responses"], answer.text
        assert answer.status_code in ((400, 413, 415, 422) if mode.is_negative else (200, 401))

    ask()
