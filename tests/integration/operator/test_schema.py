"""What the API server takes as a FlexServModel, and what it says about the rest."""

import pytest

from tests.support.control_plane import ApiRejected
from tests.support.operator_world import World


@pytest.mark.parametrize(
    "spec",
    [
        {"model": "gpt2"},
        {"model": "Qwen/Qwen3-0.6B", "revision": "refs/pr/1"},
        {"model": "org/m-GGUF:m.Q4_1.gguf"},
        {"model": "/models/m/.cache:m.gguf"},
        {"model": "/models/SmolLM2-135M-Instruct", "servedName": "HuggingFaceTB/SmolLM2-135M-Instruct"},
        {"model": "org/m", "residency": "OnDemand", "idleTimeoutSeconds": 0},
        {"model": "org/m", "chatTemplateKwargs": {"enable_thinking": False, "nested": {"any": [1]}}},
        {"model": "org/m", "quantization": "bnb-4bit", "dtype": "bfloat16", "attnImplementation": "sdpa"},
        {"model": "org/m", "backendRef": {"name": "other"}},
    ],
    ids=lambda spec: " ".join(spec),
)
def test_good_ones(world: World, spec: dict):
    stored = world.apply("good", **spec)["spec"]
    assert {key: stored[key] for key in spec} == spec
    assert (stored["kind"], stored["priority"], stored["loadTimeoutSeconds"]) == ("Serve", 0, 1800)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, ["spec.model", "Required"]),
        ({"model": "https://hf.co/org/m"}, ["spec.model", "URL", "such as Qwen/Qwen3-0.6B"]),
        ({"model": "../m"}, ["spec.model", "'..'", "write the path out"]),
        ({"model": "org/m@v1"}, ["spec.model", "spec.revision"]),
        ({"model": "org/m/x"}, ["spec.model", "owner/name"]),
        ({"model": "org/m:x.bin"}, ["spec.model", "file.gguf"]),
        ({"model": "/models/./m"}, ["spec.model", "'.' folders"]),
        ({"model": "/models/."}, ["spec.model", "'.' folders"]),
        ({"model": "org/m", "kind": "Image"}, ["spec.kind", "Serve", "Embedding"]),
        ({"model": "org/m", "revision": "a b"}, ["spec.revision", "branch, tag or commit"]),
        ({"model": "/m", "revision": "v1"}, ["spec.revision", "remove spec.revision"]),
        ({"model": "org/m", "servedName": "a b"}, ["spec.servedName", "letters"]),
        ({"model": "org/m", "servedName": "https://x/y"}, ["spec.servedName", "URL"]),
        ({"model": "org/m", "servedName": "a/../b"}, ["spec.servedName", "'..'"]),
        ({"model": "org/m", "residency": "Always"}, ["spec.residency", "Pinned", "OnDemand"]),
        (
            {"model": "org/m", "idleTimeoutSeconds": 5},
            ["spec.idleTimeoutSeconds", "set spec.residency to OnDemand"],
        ),
        (
            {"model": "org/m", "loadTimeoutSeconds": 0},
            ["spec.loadTimeoutSeconds", "greater than or equal to 1"],
        ),
        ({"model": "org/m", "priority": "high"}, ["spec.priority", "integer"]),
        (
            {"model": "org/m", "kind": "Embedding", "chatTemplateKwargs": {}},
            ["spec.chatTemplateKwargs", "remove spec.chatTemplateKwargs"],
        ),
        ({"model": "org/m", "backendRef": {}}, ["spec.backendRef.name", "Required"]),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_bad_ones_are_refused_with_the_field_and_the_remedy(world: World, spec: dict, words: list[str]):
    with pytest.raises(ApiRejected) as refused:
        world.apply("bad", **spec)
    assert all(word in str(refused.value) for word in words), str(refused.value)


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ({}, {"model": "org/other"}),
        ({}, {"kind": "Embedding"}),
        ({}, {"backendRef": {"name": "other"}}),
        ({"backendRef": {"name": "one"}}, {"backendRef": {"name": "other"}}),
        ({"backendRef": {"name": "one"}}, {"backendRef": None}),
    ],
    ids=["model", "kind", "adding a backend", "another backend", "removing the backend"],
)
def test_what_a_flexservmodel_is_about_cannot_change(world: World, before: dict, change: dict):
    world.apply("fixed", model="org/m", **before)
    with pytest.raises(ApiRejected, match=r"is immutable.*create another FlexServModel"):
        world.edit("fixed", **change)
    world.edit("fixed", priority=3, residency="OnDemand", revision="v2", servedName="x")
