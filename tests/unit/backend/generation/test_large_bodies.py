"""Bodies that are large and wrong in every place: what they cost must not grow with what is wrong."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from fastapi import Request
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.chat import understand_chat
from hf_transformers_backend.generation.completion import understand_completion
from hf_transformers_backend.generation.embedding import understand_embeddings
from hf_transformers_backend.generation.responses import understand_responses
from hf_transformers_backend.generation.validation import validated
from hf_transformers_backend.routes.bodies import DeclaredBody, LoadBody, UnloadBody
from hf_transformers_backend.routes.json_request import understood
from hf_transformers_backend.schemas.base import SLICE, InSlices, Items
from hf_transformers_backend.schemas.completions import ChatRequest, CompletionRequest
from hf_transformers_backend.schemas.generation_config import GenerationConfigField
from hf_transformers_backend.schemas.media import EmbeddingsRequest, TranscriptionRequest
from hf_transformers_backend.schemas.responses import InputItem, ResponsesRequest
from pydantic import BeforeValidator, TypeAdapter, ValidationError

USER = {"role": "user", "content": "hi"}
MANY = 20_000
MOST_FAULTS = 12
"""Some for each alternative of one place, and not for each place."""


def understand_declared(body: Any) -> Any:
    return validated(DeclaredBody, body, block_unexpected=True)


@pytest.mark.parametrize(
    ("understand", "body", "param"),
    [
        (understand_completion, {"prompt": [-1] * MANY}, "prompt[0]"),
        (understand_completion, {"prompt": [1] * MANY + [-1]}, f"prompt[{MANY}]"),
        (understand_completion, {"prompt": [""] * MANY + [1]}, f"prompt[{MANY}]"),
        (understand_completion, {"prompt": [[-1]] * MANY}, "prompt[0][0]"),
        (understand_completion, {"prompt": [None] * MANY}, "prompt[0]"),
        (understand_chat, {"messages": [{}] * MANY}, "messages[0].role"),
        (understand_chat, {"messages": [{"role": "user", "content": [{}] * MANY}]}, "messages[0].content[0]"),
        (understand_chat, {"messages": [USER], "tools": [{}] * MANY}, "tools[0].type"),
        (understand_chat, {"messages": [USER], "stop": [1] * 16}, "stop[0]"),
        (
            understand_chat,
            {"messages": [USER], "logit_bias": dict.fromkeys(map(str, range(MANY)), 101)},
            "logit_bias.0",
        ),
        (
            understand_chat,
            {"messages": [USER], "generation_config": '{"suppress_tokens": [' + "-1," * MANY + "-1]}"},
            "generation_config.suppress_tokens[0]",
        ),
        (understand_responses, {"input": [{}] * MANY}, "input[0]"),
        (understand_responses, {"input": [5] * MANY}, "input[0]"),
        (understand_responses, {"input": "x", "tools": [{}] * MANY}, "tools[0].type"),
        (understand_embeddings, {"input": [-1] * MANY}, "input[0]"),
        (understand_embeddings, {"input": [1] * MANY + ["a"]}, f"input[{MANY}]"),
        (understand_embeddings, {"input": [""] * 2048}, "input[0]"),
        (understand_embeddings, {"input": ["a"] * MANY}, "input"),
        (understand_embeddings, {"input": [[1]] * MANY}, "input"),
        (understand_declared, {"hash": "h", "models": [{}] * MANY}, "models[0].model_id"),
    ],
)
def test_the_first_fault_of_many_is_named_and_the_others_are_not_looked_for(
    understand: Callable[[Any], Any], body: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        understand(body)
    assert caught.value.param == param
    cause = caught.value.__cause__
    assert isinstance(cause, ValidationError) and cause.error_count() <= MOST_FAULTS


def containers(schema: Any, place: str = "") -> Iterator[tuple[str, bool]]:
    """(place, whether it stops at the first fault) of every list and dict in one of pydantic's schemas."""
    if isinstance(schema, list | tuple):
        for part in schema:
            yield from containers(part, place)
    if not isinstance(schema, dict) or "JsonValue" in str(schema.get("ref", "")):
        return
    if schema.get("type") in ("list", "dict"):
        yield f"{place}: {schema['type']}", bool(schema.get("fail_fast"))
    for key, part in schema.items():
        if key not in ("metadata", "serialization"):
            yield from containers(part, f"{place}.{key}")


@pytest.mark.parametrize(
    "schema",
    [
        ChatRequest,
        CompletionRequest,
        ResponsesRequest,
        InputItem,
        EmbeddingsRequest,
        TranscriptionRequest,
        GenerationConfigField,
        LoadBody,
        UnloadBody,
        DeclaredBody,
    ],
    ids=lambda schema: getattr(schema, "__name__", "InputItem"),
)
def test_no_list_of_any_body_is_searched_for_a_second_fault(schema: Any) -> None:
    assert [place for place, stops in containers(TypeAdapter(schema).core_schema) if not stops] == []


def test_what_is_nested_deeply_is_named_in_few_words() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    with pytest.raises(BadRequest, match="nested too deeply") as caught:
        understand_chat({"messages": [USER], "metadata": {"a": deep}})
    assert str(caught.value.param).startswith("metadata.a[0]") and len(caught.value.message) < 200


def test_unknown_fields_are_not_all_repeated() -> None:
    unknown = {f"field{number}": 1 for number in range(MANY)}
    with pytest.raises(BadRequest, match=r"field0, .*; remove them") as caught:
        understand_chat({"messages": [USER], **unknown}, block_unexpected=True)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(("items", "aside"), [(1, False), (MANY, True)])
async def test_a_large_body_is_understood_beside_the_event_loop(items: int, aside: bool) -> None:
    body = json.dumps({"input": ["text"] * items}).encode()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    def where(value: Any) -> tuple[int, bool]:
        return len(value["input"]), threading.current_thread() is not threading.main_thread()

    request = Request({"type": "http", "headers": [], "method": "POST", "path": "/"}, receive)
    assert await understood(request, where) == (items, aside)


class Sliced(list[Any]):
    """A list that counts the slices that are taken of it."""

    slices = 0

    def __getitem__(self, key: Any) -> Any:
        self.slices += isinstance(key, slice)
        return super().__getitem__(key)


MESSAGE = {"role": "user", "content": "hello"}
PART = {"type": "text", "text": "a"}
TOOL = {"type": "function", "function": {"name": "a"}}
CALL = {"id": "1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
FAR = 2 * SLICE + 5
understand_item = TypeAdapter(InputItem).validate_python


@pytest.mark.parametrize(
    ("understand", "item", "body"),
    [
        (understand_chat, MESSAGE, lambda many: {"messages": many}),
        (understand_chat, PART, lambda many: {"messages": [{**MESSAGE, "content": many}]}),
        (understand_chat, TOOL, lambda many: {"messages": [MESSAGE], "tools": many}),
        (
            understand_chat,
            CALL,
            lambda many: {"messages": [{"role": "assistant", "tool_calls": many}, MESSAGE]},
        ),
        (understand_responses, MESSAGE, lambda many: {"input": many}),
        (understand_item, PART, lambda many: {**MESSAGE, "type": "message", "content": many}),
        (understand_responses, {"type": "function", "name": "a"}, lambda many: {"input": "x", "tools": many}),
        (
            understand_item,
            PART,
            lambda many: {"type": "function_call_output", "call_id": "1", "output": many},
        ),
        (understand_item, {"text": "a"}, lambda many: {"type": "reasoning", "content": many}),
    ],
)
def test_every_list_of_objects_without_an_upper_bound_is_validated_in_slices(
    understand: Callable[[Any], Any], item: Any, body: Callable[[Any], dict[str, Any]]
) -> None:
    """Other threads have their turn between them."""
    many = Sliced([item] * FAR)
    understand(body(many))
    assert many.slices >= 3


def test_a_fault_far_down_costs_no_second_look_at_what_is_before_it() -> None:
    looked: list[Any] = []

    def look(value: Any) -> Any:
        looked.append(value)
        return value

    adapter = TypeAdapter(Annotated[Items[Annotated[int, BeforeValidator(look)]], InSlices])
    with pytest.raises(ValidationError) as refused:
        adapter.validate_python([*range(FAR), "x"])
    assert refused.value.errors()[0]["loc"] == (FAR,)
    assert len(looked) == FAR + 1


@pytest.mark.parametrize(
    ("understand", "body", "place"),
    [
        (understand_chat, {"messages": [*[MESSAGE] * FAR, {"role": "user", "content": 3}]}, "messages[{}]"),
        (understand_chat, {"messages": [{**MESSAGE, "content": [*[PART] * FAR, 3]}]}, "content[{}]"),
        (understand_chat, {"messages": [MESSAGE], "tools": [*[TOOL] * FAR, {}]}, "tools[{}]"),
        (understand_responses, {"input": [*[MESSAGE] * FAR, 3]}, "input[{}]"),
        (understand_responses, {"input": [{**MESSAGE, "content": [*[PART] * FAR, 3]}]}, "content[{}]"),
    ],
)
def test_a_fault_far_down_a_list_is_named_by_its_place_in_the_whole_list(
    understand: Callable[[Any], Any], body: dict[str, Any], place: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        understand(body)
    assert place.format(FAR) in str(refused.value.param)
