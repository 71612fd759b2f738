"""`/openapi.json`, and a fuzzer that reads it: no request that it thinks of finds a fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import given
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from holdfast.service import Settings
from holdfast.service.openapi import document
from holdfast.service.tables import operations_of
from service.fuzzing import FEW
from service.running import NAMESPACES, Api, running


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Returns a service in which no request waits for long."""
    url = f"sqlite://{tmp_path_factory.mktemp('store')}/locks.db"
    with running(url, longest_wait=0.01) as (api, _):
        yield api


SETTINGS = Settings(longest_wait=0.01, namespaces=NAMESPACES)
schema = schemathesis.openapi.from_dict(document(operations_of(SETTINGS), NAMESPACES))
OPERATIONS = [one.id for one in operations_of(SETTINGS) if one.stream is None]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_answer_is_as_described(fuzzed: Api, operation: str, mode: GenerationMode) -> None:
    found = schema.find_operation_by_id(operation)
    if mode.is_negative and not found.body and not list(found.iter_parameters()):
        return  # nothing that could be wrong

    @FEW
    @given(case=found.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        answer = case.call_and_validate(
            base_url=fuzzed.url, excluded_checks=[positive_data_acceptance]
        )
        if mode.is_positive and answer.status_code == 422:
            # All that a description cannot say: how two fields fit together, and bytes of UTF-8.
            assert answer.json().get("field") in (None, "weight", "capacity", "delay", "owner")

    ask()


def test_it_is_the_whole_service(fuzzed: Api) -> None:
    document = fuzzed.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            url = path.replace("{name}", "a").replace("{resource}", "a")
            answer = fuzzed.http.options(url)
            assert method.upper() in answer.headers["allow"]
            assert operation["summary"]
    for path in ("/nothing", "/v1/locks/a/acquire"):
        problem = fuzzed.get(path)
        assert problem.headers["content-type"] == "application/problem+json"
