"""What needs a model that says the right thing: tool calls, reasoning, infill, time stamps.

The models' weights spell out their answers; server, client and `generate` are the real ones.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import soundfile
from openai import OpenAI

from tests.support.scripted_models import write_chat_model, write_infill_model, write_speech_model
from tests.support.server import RunningServer

ASK: list[Any] = [{"role": "user", "content": "What is the weather in Köln?"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Says what the weather is.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ARGUMENTS = {"city": "Köln 😀", "days": 2}
CALLED = json.dumps({"name": "weather", "arguments": ARGUMENTS}, ensure_ascii=False)
CALL = f"<tool_call>\n{CALLED}\n</tool_call>"
MALFORMED = '<tool_call>\n{"name": "weather", "arguments": {"city": \n</tool_call>'
THOUGHTS, WORDS = "Rain, or sun?\nIt is été.", "It is sunny: 21 °C."
SEGMENTS = [(0.0, 1.2, " Hello there,"), (1.2, 2.5, " world.")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scripted")


@pytest.fixture
def server(odd_server: RunningServer) -> RunningServer:
    return odd_server


@pytest.fixture
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0, timeout=90) as made:
        yield made


@pytest.fixture(scope="module")
def caller(folder: Path) -> str:
    return write_chat_model(folder / "caller", f"Let me see.\n{CALL}")


@pytest.fixture(scope="module")
def thinker(folder: Path) -> str:
    return write_chat_model(folder / "thinker", f"<think>\n{THOUGHTS}\n</think>\n\n{WORDS}")


@pytest.fixture(scope="module")
def listener(folder: Path) -> str:
    return write_speech_model(folder / "listener", SEGMENTS, language="de")


def test_a_tool_call_is_parsed_and_the_text_before_it_stays(client: OpenAI, caller: str) -> None:
    got = client.chat.completions.create(model=caller, messages=ASK, tools=[WEATHER]).choices[0]
    assert got.finish_reason == "tool_calls"
    assert got.message.content == "Let me see."
    (call,) = got.message.tool_calls or []
    assert call.type == "function" and call.id
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", ARGUMENTS)
    turn: list[Any] = [*ASK, got.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    again = client.chat.completions.create(model=caller, messages=turn, tools=[WEATHER])
    assert again.choices[0].finish_reason == "tool_calls"


def test_a_tool_call_is_streamed(client: OpenAI, caller: str) -> None:
    with client.chat.completions.stream(model=caller, messages=ASK, tools=[WEATHER]) as stream:
        texts = [event.delta for event in stream if event.type == "content.delta"]
        message = stream.get_final_completion().choices[0]
    assert len(texts) > 1 and "".join(texts) == "Let me see."
    assert message.finish_reason == "tool_calls"
    (call,) = message.message.tool_calls or []
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", ARGUMENTS)


def test_a_tool_call_is_an_item_of_a_response(client: OpenAI, caller: str) -> None:
    tool: Any = {"type": "function", **WEATHER["function"]}
    whole = client.responses.create(model=caller, input=ASK[0]["content"], tools=[tool])
    with client.responses.stream(model=caller, input=ASK[0]["content"], tools=[tool]) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_response()
    for response in (whole, streamed):
        assert response.output_text == "Let me see."
        (call,) = (item for item in response.output if item.type == "function_call")
        assert (call.name, json.loads(call.arguments)) == ("weather", ARGUMENTS)
    assert "response.function_call_arguments.done" in kinds


@pytest.mark.parametrize("fields", [{}, {"tools": [WEATHER], "tool_choice": "none"}], ids=["none", "refused"])
def test_without_tools_offered_the_same_text_is_text(
    client: OpenAI, caller: str, fields: dict[str, Any]
) -> None:
    got = client.chat.completions.create(model=caller, messages=ASK, **fields).choices[0]
    assert (got.finish_reason, got.message.tool_calls) == ("stop", None)
    assert got.message.content == f"Let me see.\n{CALL}"


def test_a_malformed_tool_call_stays_text_streamed_and_not(client: OpenAI, folder: Path) -> None:
    model = write_chat_model(folder / "babbler", f"Well.\n{MALFORMED}\nSorry é.")
    got = client.chat.completions.create(model=model, messages=ASK, tools=[WEATHER]).choices[0]
    streamed = list(client.chat.completions.create(model=model, messages=ASK, tools=[WEATHER], stream=True))
    assert (got.finish_reason, got.message.tool_calls) == ("stop", None)
    assert MALFORMED in (got.message.content or "") and (got.message.content or "").endswith("Sorry é.")
    assert "".join(c.choices[0].delta.content or "" for c in streamed if c.choices) == got.message.content
    assert streamed[-1].choices[0].finish_reason == "stop"


def test_reasoning_goes_to_reasoning_content_streamed_and_not(client: OpenAI, thinker: str) -> None:
    answer = client.chat.completions.create(model=thinker, messages=ASK)
    got: Any = answer.choices[0].message
    assert (got.reasoning_content, got.content) == (THOUGHTS, WORDS)
    chunks = list(
        client.chat.completions.create(
            model=thinker, messages=ASK, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].usage == answer.usage
    assert reasoning_share(answer.usage) == pytest.approx(len(THOUGHTS) / len(THOUGHTS + WORDS), abs=0.2)
    deltas: list[Any] = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thoughts = [delta.reasoning_content for delta in deltas if getattr(delta, "reasoning_content", None)]
    words = [delta.content for delta in deltas if delta.content]
    assert len(thoughts) > 1 and len(words) > 1
    assert ("".join(thoughts), "".join(words)) == (THOUGHTS, WORDS)


def reasoning_share(usage: Any) -> float:
    share: float = usage.completion_tokens_details.reasoning_tokens / usage.completion_tokens
    return share


def test_reasoning_is_an_item_of_a_response(client: OpenAI, thinker: str) -> None:
    got: Any = client.responses.create(model=thinker, input="hi")
    assert 0 < got.usage.output_tokens_details.reasoning_tokens < got.usage.output_tokens
    assert [item.type for item in got.output] == ["reasoning", "message"]
    assert got.output[0].content[0].text == THOUGHTS
    assert got.output_text == WORDS


def test_a_hole_is_filled_whole_streamed_and_echoed(client: OpenAI, folder: Path) -> None:
    model = write_infill_model(folder / "coder", "a + b  # été")
    ask: dict[str, Any] = {"model": model, "prompt": "def add(a, b):\n    return ", "suffix": "\n\nadd(1, 2)"}
    whole = client.completions.create(**ask)
    assert whole.choices[0].text == "a + b  # été"
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == len((ask["prompt"] + ask["suffix"]).encode()) + 3
    streamed = client.completions.create(**ask, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == "a + b  # été"
    echoed = client.completions.create(**ask, echo=True)
    assert echoed.choices[0].text == ask["prompt"] + "a + b  # été"


def test_a_suffix_for_a_model_that_cannot_fill_is_a_400(client: OpenAI, caller: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=caller, prompt="x", suffix="y")
    assert caught.value.param == "suffix"


def sound(seconds: float, rate: int = 16000, channels: int = 1) -> tuple[str, io.BytesIO]:
    noise = np.random.default_rng(0).normal(0, 0.1, (int(rate * seconds), channels))
    buffer = io.BytesIO()
    soundfile.write(buffer, noise, rate, format="WAV")
    buffer.seek(0)
    return "a.wav", buffer


def test_segments_have_their_times_and_the_language_is_detected(client: OpenAI, listener: str) -> None:
    got = client.audio.transcriptions.create(
        model=listener, file=sound(3.0, 44100, 2), response_format="verbose_json"
    )
    assert (got.text, got.language) == ("Hello there, world.", "de")
    assert abs(got.duration - 3.0) < 0.01
    assert [(s.id, s.start, s.end, s.text) for s in got.segments or []] == [
        (0, 0.0, 1.2, " Hello there,"),
        (1, 1.2, 2.5, " world."),
    ]
    plain = client.audio.transcriptions.create(model=listener, file=sound(3.0), language="en")
    assert plain.text.endswith("there, world.")


def test_subtitles_come_in_both_forms(client: OpenAI, listener: str) -> None:
    srt = client.audio.transcriptions.create(model=listener, file=sound(3.0), response_format="srt")
    assert srt == (
        "1\n00:00:00,000 --> 00:00:01,200\nHello there,\n\n2\n00:00:01,200 --> 00:00:02,500\nworld.\n\n"
    )
    vtt = client.audio.transcriptions.create(model=listener, file=sound(3.0), response_format="vtt")
    assert vtt == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.200\nHello there,\n\n00:00:01.200 --> 00:00:02.500\nworld.\n\n"
    )


def test_a_long_sound_is_heard_to_its_end(client: OpenAI, listener: str) -> None:
    got = client.audio.transcriptions.create(
        model=listener, file=sound(65.0), response_format="verbose_json", language="de"
    )
    assert [(s.start, s.text) for s in got.segments or []] == [
        (begin + start, text) for begin in (0.0, 30.0, 60.0) for start, _, text in SEGMENTS
    ]
    assert got.text == " ".join(["Hello there, world."] * 3)
