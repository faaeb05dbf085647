"""Events become the objects that OpenAI's client library reads, whole and streamed, and both say the same."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hf_transformers_backend.errors import Unavailable
from hf_transformers_backend.generation.answer_chat import ChatChunks, chat_completion
from hf_transformers_backend.generation.answer_completion import CompletionChunks, text_completion
from hf_transformers_backend.generation.answer_responses import ResponseEvents, response
from hf_transformers_backend.generation.answer_transcription import transcription_json, transcription_text
from hf_transformers_backend.generation.embedding import embeddings_answer
from hf_transformers_backend.generation.events import Event, Finish, ReasoningDelta, TextDelta, ToolCall
from hf_transformers_backend.generation.responses import understand_responses
from hf_transformers_backend.generation.serving import IndexedEvent
from hf_transformers_backend.generation.speech import Segment, Transcript
from hf_transformers_backend.generation.sse import StreamWriter, write_stream
from hf_transformers_backend.generation.transcription import understand_transcription
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

EVENTS: list[Event] = [
    ReasoningDelta("h"),
    ReasoningDelta("m"),
    TextDelta("Let me "),
    TextDelta("see €."),
    ToolCall("f", '{"a": 1}'),
    ToolCall("g", "{}"),
    Finish("tool_calls", 10, 20, 7),
]
TEXT: list[Event] = [TextDelta("Paris"), TextDelta("."), Finish("stop", 5, 3)]
ECHOED = understand_responses({"input": "x"}).echoed


async def scripted(events: list[Event], failure: Exception | None = None) -> AsyncIterator[IndexedEvent]:
    for event in events:
        yield IndexedEvent(0, event)
    if failure is not None:
        raise failure


async def stream(writer: StreamWriter, events: list[Event], failure: Exception | None = None) -> list[Any]:
    """The data of each event, parsed; the end marker as a string."""
    frames = b"".join([chunk async for chunk in write_stream(writer, scripted(events, failure))]).decode()
    assert frames.endswith("\n\n")
    parsed = []
    for frame in frames.removesuffix("\n\n").split("\n\n"):
        name, _, data = frame.rpartition("data: ")
        value = data if data == "[DONE]" else json.loads(data)
        assert name == (f"event: {value['type']}\n" if writer.named else "")
        parsed.append(value)
    return parsed


def test_a_chat_completion_holds_everything() -> None:
    got = ChatCompletion.model_validate(chat_completion("asked/name", EVENTS))
    (choice,) = got.choices
    assert (got.model, got.object, choice.finish_reason) == ("asked/name", "chat.completion", "tool_calls")
    assert choice.message.content == "Let me see €."
    assert choice.message.model_extra == {"reasoning_content": "hm"}
    calls = choice.message.tool_calls or []
    assert [(c.function.name, c.function.arguments) for c in calls] == [("f", '{"a": 1}'), ("g", "{}")]  # type: ignore[union-attr]
    assert len({call.id for call in calls}) == 2
    assert got.usage is not None and got.usage.total_tokens == 30
    assert got.usage.completion_tokens_details is not None
    assert got.usage.completion_tokens_details.reasoning_tokens == 7


def test_a_chat_completion_without_text_but_calls_has_null_content() -> None:
    got = chat_completion("m", [ToolCall("f", "{}"), Finish("tool_calls", 1, 1)])
    assert got["choices"][0]["message"]["content"] is None


def test_an_empty_chat_completion_has_empty_content() -> None:
    assert chat_completion("m", [Finish("length", 1, 1)])["choices"][0]["message"]["content"] == ""


def test_ids_are_unique() -> None:
    assert len({chat_completion("m", TEXT)["id"] for _ in range(100)}) == 100


async def test_chat_chunks_say_who_what_why_and_done() -> None:
    got = await stream(ChatChunks("m", include_usage=False), EVENTS)
    assert got.pop() == "[DONE]"
    chunks = [ChatCompletionChunk.model_validate(chunk) for chunk in got]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in got)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == "Let me see €."
    assert "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas) == "hm"
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [(c.index, c.function.name) for c in calls if c.function] == [(0, "f"), (1, "g")]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]


async def test_usage_comes_last_without_choices_when_it_is_asked_for() -> None:
    got = await stream(ChatChunks("m", include_usage=True), TEXT)
    assert [chunk["usage"] for chunk in got[:-2]] == [None] * (len(got) - 2)
    assert got[-2]["choices"] == []
    assert got[-2]["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


@pytest.mark.parametrize(
    "writer", [ChatChunks("m", include_usage=True), CompletionChunks("m", include_usage=True, echo=None)]
)
async def test_a_failure_is_one_well_formed_event_and_then_the_end(writer: StreamWriter) -> None:
    failure = Unavailable('no "memory"\nleft', code="insufficient_memory")
    got = await stream(writer, [TextDelta("a")], failure)
    assert got[-1] == "[DONE]"
    assert got[-2]["error"]["message"] == 'no "memory"\nleft'
    assert sum("error" in chunk for chunk in got[:-1]) == 1


async def test_a_fault_of_ours_is_not_shown_to_the_client() -> None:
    got = await stream(ChatChunks("m", include_usage=False), [], ZeroDivisionError("/secret/path"))
    assert got[-2]["error"]["type"] == "server_error"
    assert "secret" not in json.dumps(got)


async def test_completions_answer_each_prompt_with_its_index() -> None:
    events = [IndexedEvent(i, event) for i in (0, 1) for event in TEXT]
    got = Completion.model_validate(text_completion("m", events, lambda index: f"prompt {index} "))
    assert [(c.index, c.text) for c in got.choices] == [(0, "prompt 0 Paris."), (1, "prompt 1 Paris.")]
    assert got.usage is not None and got.usage.prompt_tokens == 10
    writer = CompletionChunks("m", include_usage=True, echo=lambda index: f"prompt {index} ")
    chunks = [chunk for item in events for chunk in writer.on(item)]
    for index in (0, 1):
        texts = [c["choices"][0]["text"] for c in chunks if c["choices"][0]["index"] == index]
        assert "".join(texts) == f"prompt {index} Paris."
    assert writer.closing()[0]["usage"]["total_tokens"] == 16


ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.reasoning_text.delta",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    *(
        [
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        ]
        * 2
    ),
    "response.completed",
]


async def test_response_events_come_in_the_full_order_and_validate() -> None:
    got = await stream(ResponseEvents("m", ECHOED), EVENTS)
    assert [event["type"] for event in got] == ORDER
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for event in got:
        adapter.validate_python(event)
    done = [event["item"] for event in got if event["type"] == "response.output_item.done"]
    assert got[-1]["response"]["output"] == done
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "function_call"]
    assert [event["output_index"] for event in got if "output_index" in event] == sorted(
        event["output_index"] for event in got if "output_index" in event
    )


async def test_streamed_and_whole_response_say_the_same() -> None:
    whole = Response.model_validate(response("m", EVENTS, ECHOED))
    streamed = Response.model_validate((await stream(ResponseEvents("m", ECHOED), EVENTS))[-1]["response"])
    assert whole.output_text == streamed.output_text == "Let me see €."
    assert whole.usage == streamed.usage
    assert whole.usage is not None and whole.usage.output_tokens_details.reasoning_tokens == 7
    assert (whole.status, whole.model) == ("completed", "m")


def test_a_response_cut_by_the_token_limit_is_incomplete() -> None:
    got = Response.model_validate(response("m", [TextDelta("Par"), Finish("length", 5, 1)], ECHOED))
    assert got.status == "incomplete"
    assert got.incomplete_details is not None and got.incomplete_details.reason == "max_output_tokens"
    assert got.output_text == "Par"


def test_an_empty_response_has_an_empty_message() -> None:
    got = Response.model_validate(response("m", [Finish("stop", 5, 1)], ECHOED))
    assert [item.type for item in got.output] == ["message"]


async def test_a_failed_response_says_so_in_its_last_event() -> None:
    got = await stream(ResponseEvents("m", ECHOED), [TextDelta("a")], Unavailable("no memory"))
    assert got[-1]["type"] == "response.failed"
    assert got[-1]["response"]["error"] == {"code": "server_error", "message": "no memory"}
    TypeAdapter[Any](ResponseStreamEvent).validate_python(got[-1])


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", "Hello there.\n"),
        ("srt", "1\n00:00:00,000 --> 00:00:01,500\nHello\n\n2\n01:01:01,000 --> 01:01:02,250\nthere.\n\n"),
        (
            "vtt",
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello\n\n01:01:01.000 --> 01:01:02.250\nthere.\n\n",
        ),
    ],
)
def test_transcripts_become_text_and_subtitles(form: str, expected: str) -> None:
    segments = (Segment(0.0, 1.5, " Hello", (1,)), Segment(3661.0, 3662.25, " there.", (2, 3)))
    transcript = Transcript("Hello there.", 3663.0, 3, "en", segments)
    assert transcription_text(transcript, understand_transcription({"response_format": [form]})) == expected


def test_a_verbose_transcript_has_language_duration_and_segments() -> None:
    transcript = Transcript("Hello", 2.0, 3, "en", (Segment(0.0, 1.5, " Hello", (1,)),))
    got = transcription_json(transcript, understand_transcription({"response_format": ["verbose_json"]}))
    assert (got["language"], got["duration"], got["segments"][0]["end"]) == ("en", 2.0, 1.5)
    assert transcription_json(transcript, understand_transcription({})) == {
        "text": "Hello",
        "usage": {"type": "duration", "seconds": 2.0},
    }


def test_base64_vectors_are_little_endian_floats() -> None:
    import base64

    import numpy as np

    vectors = np.array([[0.5, -1.0]], dtype=np.float32)
    got = embeddings_answer("m", vectors, 3, as_base64=True)
    assert np.frombuffer(base64.b64decode(got["data"][0]["embedding"]), dtype="<f4").tolist() == [0.5, -1.0]
    assert embeddings_answer("m", vectors, 3, as_base64=False)["data"][0]["embedding"] == [0.5, -1.0]
