"""A load-time setting that was asked for and is taken back: the server's own holds again."""

from collections.abc import Iterator
from typing import Any

import pytest
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.model_settings import LoadSettings, asked_for
from hf_transformers_backend.residency import DeclaredModel, Residency
from hf_transformers_backend.routes.bodies import LoadBody
from hf_transformers_backend.settings import load_settings

from tests.support.fake_loader import FakeLoader, HandClock

A = ModelIdentity("org/a")


@pytest.fixture
def residency() -> Iterator[Residency]:
    settings = load_settings(dtype="bfloat16", quantization="bnb-4bit", device="cpu")
    residency = Residency(settings, FakeLoader(), clock=HandClock())
    residency.start()
    yield residency
    assert residency.close(timeout=20)


def load(residency: Residency, **changes: Any) -> bool:
    """Load by order; whether that was a load at all."""
    ticket = residency.load(A, changes)
    if ticket.job is None:
        return False
    assert ticket.job.outcome.result(timeout=20) is None
    return True


def in_force(residency: Residency) -> tuple[LoadSettings, dict[str, Any]]:
    (model,) = residency.snapshot().models
    return model.settings, dict(model.asked)


def test_null_goes_back_to_the_servers_own_and_absent_changes_nothing(residency: Residency) -> None:
    assert load(residency, dtype="float16", quantization="none")
    assert in_force(residency) == (
        LoadSettings("float16", None),
        {"dtype": "float16", "quantization": "none"},
    )
    assert not load(residency, priority=3)
    assert load(residency, dtype=None)
    assert in_force(residency) == (LoadSettings("bfloat16", None), {"quantization": "none"})
    assert load(residency, quantization=None)
    assert in_force(residency) == (LoadSettings("bfloat16", "bnb-4bit"), {})


def test_asking_by_name_for_what_is_there_already_loads_nothing_and_is_remembered(
    residency: Residency,
) -> None:
    assert load(residency)
    assert not load(residency, dtype="bfloat16")
    assert in_force(residency) == (LoadSettings("bfloat16", "bnb-4bit"), {"dtype": "bfloat16"})
    assert not load(residency, dtype=None)
    assert in_force(residency)[1] == {}


def test_nulls_in_the_declared_list_are_the_servers_own(residency: Residency) -> None:
    nulls = {"dtype": None, "quantization": None, "attn_implementation": None, "trust_remote_code": None}
    residency.declare([DeclaredModel(A, {**nulls, "dtype": "float32"})], "h")
    ticket = residency.request_load("org/a")
    assert ticket.job is not None and ticket.job.outcome.result(timeout=20) is None
    assert in_force(residency) == (LoadSettings("float32", "bnb-4bit"), {"dtype": "float32"})


def test_the_body_of_a_load_says_null_and_none_apart() -> None:
    body = LoadBody.model_validate({"model_id": "org/a", "dtype": None, "quantization": "none"})
    assert body.changes() == {"dtype": None, "quantization": "none"}
    assert LoadBody.model_validate({"model_id": "org/a"}).changes() == {}


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({}, {}, {}),
        ({"dtype": "float16"}, {}, {"dtype": "float16"}),
        ({"dtype": "float16"}, {"dtype": None}, {}),
        ({}, {"trust_remote_code": False}, {"trust_remote_code": False}),
        ({}, {"owner": "x", "priority": 3}, {}),
    ],
)
def test_what_was_asked_for(before: dict[str, Any], changes: dict[str, Any], after: dict[str, Any]) -> None:
    assert asked_for(before, changes) == after
