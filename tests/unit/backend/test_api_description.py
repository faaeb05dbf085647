"""The OpenAPI document as a whole; what it says of each answer is held against real ones elsewhere."""

import json
import re
from typing import Any

import pytest
from hf_transformers_backend.app import build_app
from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.routes.bodies import SETTING_NAMES
from hf_transformers_backend.routes.openapi import INFERENCE, LOAD, MUTATING_LOAD, MUTATION, READ
from hf_transformers_backend.settings import Settings


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build_app(Settings()).openapi()


def test_every_reference_leads_to_a_schema_and_every_schema_is_referred_to(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    referred = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert referred == set(document["components"]["schemas"])
    assert "$defs" not in text and "HTTPValidationError" not in text


def test_every_operation_has_a_name_of_its_own_a_summary_and_a_described_answer(
    document: dict[str, Any],
) -> None:
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names)) > 15
    for operation in operations:
        assert operation["summary"]
        for status, answer in operation["responses"].items():
            for content in answer["content"].values():
                assert content.get("schema") or content.get("itemSchema"), (operation["operationId"], status)


def test_every_error_of_the_backend_is_one_that_some_route_describes() -> None:
    described = {*READ, *LOAD, *INFERENCE, *MUTATION, *MUTATING_LOAD}
    assert {error.status for error in FlexServError.__subclasses__()} == described


@pytest.mark.parametrize("name", ["LoadBody", "DeclaredEntry"])
def test_a_setting_that_a_body_leaves_out_has_no_default_that_a_client_could_fill_in(
    document: dict[str, Any], name: str
) -> None:
    """It would change what it does not mean to change."""
    properties = document["components"]["schemas"][name]["properties"]
    assert set(properties) > SETTING_NAMES
    assert [setting for setting in SETTING_NAMES if "default" in properties[setting]] == []
