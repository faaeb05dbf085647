"""What a body means, and how each way of being wrong is named."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.chat import understand_chat
from hf_transformers_backend.generation.completion import understand_completion
from hf_transformers_backend.generation.embedding import understand_embeddings
from hf_transformers_backend.generation.request import ChatPrompt, InfillPrompt, TextPrompt, TokenPrompt
from hf_transformers_backend.generation.responses import understand_responses
from hf_transformers_backend.generation.transcription import understand_transcription

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": [USER], **fields}


def chat_prompt(**fields: Any) -> ChatPrompt:
    (prompt,) = understand_chat(chat(**fields)).prompts
    assert isinstance(prompt, ChatPrompt)
    return prompt


CHAT_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [USER, {"role": "assistant", "content": "x"}]}, "messages[1].role"),
    ({"messages": [USER, {"role": "assistant"}, USER]}, "messages[1].content"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{**USER, "tool_calls": [CALL]}]}, "messages[0].tool_calls"),
    (
        {
            "messages": [
                {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{"}}]}
            ]
        },
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"model": 5}, "model"),
    ({"model": ""}, "model"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": float("nan")}, "temperature"),
    ({"temperature": float("inf")}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 1.1}, "top_p"),
    ({"seed": 1.5}, "seed"),
    ({"seed": 2**63}, "seed"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"frequency_penalty": -2.5}, "frequency_penalty"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", 1]}, "stop[1]"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"stream": "yes"}, "stream"),
    ({"n": 2}, "n"),
    ({"logprobs": True}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"response_format": {"type": "json_object"}}, "response_format.type"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"audio": {"voice": "x"}}, "audio"),
    ({"modalities": ["text", "audio"]}, "modalities[1]"),
    ({"functions": []}, "functions"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"generation_config": "{"}, "generation_config"),
    ({"generation_config": "[1]"}, "generation_config"),
    ({"generation_config": {"top_k": 1}}, "generation_config"),
    ({"generation_config": '{"top_k": "many"}'}, "generation_config.top_k"),
    ({"generation_config": '{"temperature": NaN}'}, "generation_config.temperature"),
    ({"generation_config": '{"num_return_sequences": 2}'}, "generation_config.num_return_sequences"),
    ({"generation_config": '{"prompt_lookup_num_tokens": 3}'}, "generation_config.prompt_lookup_num_tokens"),
    ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"tokenize": False}}, "chat_template_kwargs.tokenize"),
    ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
    ({"chat_template_kwargs": {"return_tensors": "pt"}}, "chat_template_kwargs.return_tensors"),
    ({"enable_thinking": "maybe"}, "enable_thinking"),
    ({"enable_thinking": 1}, "enable_thinking"),
]


@pytest.mark.parametrize(("fields", "param"), CHAT_FAULTS, ids=lambda value: str(value)[:60])
def test_a_faulty_chat_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        understand_chat(chat(**fields))
    assert caught.value.param == param
    assert caught.value.message.startswith(param.split(".")[0].split("[")[0])
    assert "pydantic" not in caught.value.message


@pytest.mark.parametrize("body", [None, [], "x", 5])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(BadRequest, match="JSON object"):
        understand_chat(body)


def test_null_is_absent_everywhere() -> None:
    names = [
        "model",
        "temperature",
        "top_p",
        "seed",
        "stop",
        "n",
        "logprobs",
        "tools",
        "tool_choice",
        "max_tokens",
    ]
    names += [
        "response_format",
        "stream",
        "stream_options",
        "chat_template_kwargs",
        "enable_thinking",
        "audio",
    ]
    assert understand_chat(chat(**dict.fromkeys(names))) == understand_chat(chat())


def test_values_that_ask_for_nothing_special_are_taken() -> None:
    fields = {"n": 1, "logprobs": False, "response_format": {"type": "text"}, "tool_choice": "auto"}
    assert understand_chat(chat(**fields, modalities=["text"], user="u", store=True)) == understand_chat(
        chat()
    )


def test_the_fields_arrive() -> None:
    asked = understand_chat(
        chat(
            model="m", temperature=0.5, top_p=0.9, seed=7, presence_penalty=1, frequency_penalty=-1,
            logit_bias={"3": -100}, stop="END", max_tokens=5, stream=True,
            stream_options={"include_usage": True},
            generation_config=json.dumps({"top_k": 3}), parallel_tool_calls=False,
        )
    )  # fmt: skip
    assert (asked.model, asked.stop, asked.max_tokens, asked.stream, asked.include_usage) == (
        "m", ("END",), 5, True, True,
    )  # fmt: skip
    sampling = asked.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.9, 7)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert sampling.logit_bias == {3: -100}
    assert sampling.generation_config == {"top_k": 3}
    assert not asked.parallel_tool_calls


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    assert understand_chat(chat(max_tokens=5, max_completion_tokens=9)).max_tokens == 9


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"chat_template_kwargs": {"a": 1, "b": None}}, {"a": 1}),
        ({"enable_thinking": False}, {"enable_thinking": False}),
        ({"enable_thinking": "true"}, {"enable_thinking": True}),
        (
            {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False, "custom": "v"}},
            {"enable_thinking": True, "custom": "v"},
        ),
        ({"chat_template_kwargs": {"enable_thinking": "false"}}, {"enable_thinking": "false"}),
        ({"chat_template_kwargs": None, "enable_thinking": None}, {}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
    ],
)
def test_template_variables_follow_the_precedence(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert chat_prompt(**fields).template_kwargs == expected
    if "reasoning_effort" in fields:  # there it is reasoning.effort
        fields = {"reasoning": {"effort": fields["reasoning_effort"]}}
    (prompt,) = understand_responses({"input": "x", **fields}).generation.prompts
    assert isinstance(prompt, ChatPrompt)
    assert prompt.template_kwargs == expected


def test_tools_are_offered_unless_the_choice_is_none() -> None:
    assert chat_prompt(tools=[TOOL]).tools == (TOOL,)
    assert chat_prompt(tools=[TOOL], tool_choice="none").tools == ()


@pytest.mark.parametrize(
    "understand",
    [
        lambda extra, block: understand_chat(chat(**extra), block_unexpected=block),
        lambda extra, block: understand_completion({"prompt": "x", **extra}, block_unexpected=block),
        lambda extra, block: understand_responses({"input": "x", **extra}, block_unexpected=block),
        lambda extra, block: understand_embeddings({"input": "x", **extra}, block_unexpected=block),
    ],
)
def test_unknown_fields_are_dropped_or_refused_by_name(
    understand: Callable[[dict[str, Any], bool], Any],
) -> None:
    assert understand({"zz": 1}, False) == understand({}, True)
    with pytest.raises(BadRequest, match="aa, zz"):
        understand({"zz": 1, "aa": None}, True)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", (TextPrompt("a"),)),
        (["a", "b"], (TextPrompt("a"), TextPrompt("b"))),
        ([1, 2], (TokenPrompt((1, 2)),)),
        ([[1], [2, 3]], (TokenPrompt((1,)), TokenPrompt((2, 3)))),
    ],
)
def test_completions_take_text_and_token_ids_one_or_many(prompt: Any, expected: Any) -> None:
    assert understand_completion({"prompt": prompt}).prompts == expected


def test_a_suffix_makes_a_hole_to_fill_and_an_empty_one_does_not() -> None:
    asked = understand_completion({"prompt": ["a", "b"], "suffix": "z"})
    assert asked.prompts == (InfillPrompt("a", "z"), InfillPrompt("b", "z"))
    for none in ("", None):
        assert understand_completion({"prompt": "a", "suffix": none}).prompts == (TextPrompt("a"),)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": [1, 2], "suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 0}, "logprobs"),
        ({"n": 3}, "n"),
    ],
)
def test_a_faulty_completion_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        understand_completion({"prompt": "x", **fields})
    assert (caught.value.param or "").startswith("prompt" if param.startswith("prompt") else param)


def test_responses_items_become_messages() -> None:
    asked = understand_responses(
        {
            "instructions": "Be brief",
            "input": [
                {"role": "developer", "content": "Use English"},
                {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "42"},
            ],
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
            "max_output_tokens": 3,
        }
    )
    (prompt,) = asked.generation.prompts
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages == (
        {"role": "system", "content": "Be brief\n\nUse English"},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            "reasoning_content": "hm",
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    )
    assert prompt.tools[0]["function"] == {"name": "f", "parameters": {"type": "object"}, "strict": True}
    assert (asked.generation.max_tokens, asked.generation.stream) == (3, False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input[0].role"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.type"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools"),
    ],
)
def test_a_faulty_responses_body_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        understand_responses({"input": "x", **fields})
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("given", "texts"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2]], [[1], [2]])],
)
def test_embeddings_take_text_and_token_ids_one_or_many(given: Any, texts: Any) -> None:
    assert understand_embeddings({"input": given}).texts == texts


@pytest.mark.parametrize("given", [None, "", [], [""], [[]], [1.5], {"a": 1}, [True]])
def test_embeddings_refuse_what_has_no_meaning(given: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        understand_embeddings({"input": given})
    assert (caught.value.param or "").startswith("input")


def test_a_transcription_form_is_read() -> None:
    asked = understand_transcription(
        {"model": ["w"], "language": ["DE"], "temperature": ["0.5"], "response_format": ["srt"],
         "timestamp_granularities[]": ["segment"], "stream": ["false"]}
    )  # fmt: skip
    assert (asked.model, asked.language, asked.temperature, asked.needs_segments) == ("w", "de", 0.5, True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": ["xml"]}, "response_format"),
        ({"temperature": ["hot"]}, "temperature"),
        ({"temperature": ["nan"]}, "temperature"),
        ({"stream": ["true"]}, "stream"),
        ({"timestamp_granularities[]": ["word"]}, "timestamp_granularities[0]"),
        ({"include[]": ["logprobs"]}, "include"),
    ],
)
def test_a_faulty_transcription_form_names_its_field(fields: dict[str, list[str]], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        understand_transcription(fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("understand", "fields", "message"),
    [
        (understand_chat, {"logprobs": True}, "logprobs: must be false; nothing else is supported"),
        (understand_chat, {"model": ""}, "model: must not be empty"),
        (understand_chat, {"stop": ["x"] * 17}, "stop: at most 16 of them, not 17"),
        (understand_embeddings, {"input": ["x"] * 2049}, "input: at most 2048 of them, not 2049"),
        (
            understand_responses,
            {"input": [{"type": "item_reference", "id": "m"}]},
            "input[0]: its 'type' must be one of 'message', 'function_call', 'function_call_output', "
            "'reasoning'",
        ),
        (understand_responses, {"input": [{"id": "m"}]}, "input[0]: needs a 'type'"),
    ],
)
def test_what_is_wrong_is_said_in_the_callers_words(
    understand: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        understand({**(chat() if understand is understand_chat else {}), **fields})
    assert caught.value.message == message
