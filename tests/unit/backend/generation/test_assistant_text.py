"""Reasoning, tool calls and text come apart as the tokens come; what is malformed stays text."""

from typing import Any

import pytest
from hf_transformers_backend.generation.assistant_text import AssistantText
from hf_transformers_backend.generation.detokenizer import Detokenizer
from hf_transformers_backend.generation.events import Delta, ReasoningDelta, TextDelta, ToolCall
from hf_transformers_backend.upstream.parsing import AssistantParser, response_template

from tests.support.tiny_models import byte_tokenizer, tiny_model

TOKENIZER = byte_tokenizer()
MODEL = tiny_model(TOKENIZER)
PROMPT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def deltas(answer: str, *, prompt: str = PROMPT, tools: bool = True, **options: Any) -> list[Delta]:
    template = response_template(TOKENIZER, MODEL, tools=tools)
    assert template is not None
    parser = AssistantParser(template, prompt=prompt, tools=TOOLS if tools else None)
    text = AssistantText(Detokenizer(TOKENIZER, skip_special_tokens=False), parser, **options)
    got = text.start()
    for token in TOKENIZER(answer)["input_ids"]:
        got += text.feed(token)
    return got + text.finish()


def joined(items: list[Delta]) -> list[tuple[str, str]]:
    """(kind, text) with neighbours of one kind put together."""
    result: list[tuple[str, str]] = []
    for item in items:
        kind = {TextDelta: "text", ReasoningDelta: "reasoning", ToolCall: "call"}[type(item)]
        text = f"{item.name}{item.arguments}" if isinstance(item, ToolCall) else item.text
        if result and result[-1][0] == kind != "call":
            result[-1] = (kind, result[-1][1] + text)
        else:
            result.append((kind, text))
    return result


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Paris.", [("text", "Paris.")]),
        ("Paris.<|im_end|>", [("text", "Paris.")]),
        ("  two\n\nlines \n<|im_end|>", [("text", "two\n\nlines")]),
        ("é€😀", [("text", "é€😀")]),
        ("1 < 2 <b>", [("text", "1 < 2 <b>")]),
        ("<think>\nhm, \n yes\n</think>\n\nParis.", [("reasoning", "hm, \n yes"), ("text", "Paris.")]),
        ("<think>never ends", [("reasoning", "never ends")]),
        (CALL, [("call", 'f{"a": 1}')]),
        (f"Let me see.\n{CALL}<|im_end|>", [("text", "Let me see."), ("call", 'f{"a": 1}')]),
        (f"{CALL}\n{CALL}", [("call", 'f{"a": 1}'), ("call", 'f{"a": 1}')]),
    ],
)
def test_an_answer_is_taken_apart(answer: str, expected: list[tuple[str, str]]) -> None:
    assert joined(deltas(answer)) == expected


def test_reasoning_that_the_prompt_began_is_reasoning() -> None:
    assert joined(deltas("hm</think>Paris.", prompt=f"{PROMPT}<think>\n")) == [
        ("reasoning", "hm"),
        ("text", "Paris."),
    ]


@pytest.mark.parametrize(
    "call",
    [
        "<tool_call>\nnot json\n</tool_call>",
        '<tool_call>{"name": "f"}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>["f"]</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
    ],
)
def test_a_malformed_call_stays_text_and_the_rest_is_still_parsed(call: str) -> None:
    assert joined(deltas(f"Well: {call} {CALL}")) == [("text", f"Well: {call}"), ("call", 'f{"a": 1}')]


def test_a_call_cut_off_by_the_token_limit_stays_text() -> None:
    assert joined(deltas('ok <tool_call>{"name": "f", "argu')) == [
        ("text", 'ok <tool_call>{"name": "f", "argu')
    ]


def test_without_tools_offered_nothing_is_a_call() -> None:
    assert joined(deltas(CALL, tools=False)) == [("text", CALL)]


def test_only_one_call_when_parallel_calls_are_switched_off() -> None:
    assert joined(deltas(f"{CALL}\n{CALL}", most_tool_calls=1)) == [("call", 'f{"a": 1}')]


def test_stop_text_cuts_the_visible_answer_only() -> None:
    assert joined(deltas("<think>a STOP b</think>c STOP d", stop=[" STOP"])) == [
        ("reasoning", "a STOP b"),
        ("text", "c"),
    ]


def test_plain_models_show_every_character() -> None:
    text = AssistantText(Detokenizer(TOKENIZER, skip_special_tokens=True), None)
    got = [delta for token in TOKENIZER(f" {CALL} ")["input_ids"] for delta in text.feed(token)]
    assert joined(got + text.finish()) == [("text", f" {CALL} ")]
