"""The engine on a tiny model, through the real `generate`: what comes out, when it ends, who waits."""

import asyncio
import copy
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hf_transformers_backend.errors import BadRequest, Busy, ServerFault
from hf_transformers_backend.generation.engines import Engines
from hf_transformers_backend.generation.events import Event, Finish, ReasoningDelta, TextDelta, ToolCall
from hf_transformers_backend.generation.request import (
    ChatPrompt,
    GenerationRequest,
    Sampling,
    TextPrompt,
    TokenPrompt,
)
from hf_transformers_backend.generation.serving import ServedRequest, TextAnswer
from hf_transformers_backend.upstream.served_model import Modality, ServedModel

from tests.support.tiny_models import CONTEXT_TOKENS, ScriptedModel, byte_tokenizer, served_model, tiny_model

TOKENIZER = byte_tokenizer()
CHAT = ChatPrompt(({"role": "user", "content": "hi"},))
AROUND = len("_user\n_\n_assistant\n")
"""Tokens that the template puts around one message; each tag is one of them."""


class Metrics:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.waiting_now = 0
        self.tokens = (0, 0)
        self.first_tokens = 0
        self.queue_waits = 0
        self._lock = threading.Lock()

    @property
    @contextmanager
    def waiting(self) -> Iterator[None]:
        with self._lock:
            self.waiting_now += 1
        yield
        with self._lock:
            self.waiting_now -= 1

    def observe_queue_wait(self, seconds: float) -> None:
        self.queue_waits += 1

    def observe_first_token(self, model: str | None, cold: bool, seconds: float) -> None:
        self.first_tokens += 1

    def count_tokens(self, model: str | None, *, prompt: int = 0, generated: int = 0) -> None:
        self.tokens = (self.tokens[0] + prompt, self.tokens[1] + generated)


class Lease:
    requested = label = "m"
    cold = False

    def __init__(self, model: ServedModel, template_kwargs: dict[str, Any]) -> None:
        self.model = model
        self.chat_template_kwargs = template_kwargs
        self.released = threading.Event()

    def release(self) -> None:
        self.released.set()


class House:
    """A served tiny model with its engines, leases and metrics."""

    def __init__(self, served: ServedModel, max_queue: int = 64) -> None:
        self.served = served
        self.metrics = Metrics()
        self.engines = Engines(max_queue=max_queue, metrics=self.metrics)
        self.leases: list[Lease] = []
        self.template_kwargs: dict[str, Any] = {}

    async def acquire(self, name: str | None, kind: str) -> Lease:
        self.leases.append(Lease(self.served, self.template_kwargs))
        return self.leases[-1]

    def request(self) -> ServedRequest:
        return ServedRequest(self, self.engines, None)

    async def events(self, *prompts: Any, **fields: Any) -> list[Event]:
        """All events of a request for `prompts`."""
        served = self.request()
        try:
            answer = await served.start(GenerationRequest(None, prompts, **fields))
            return [item.event async for item in answer.events()]
        finally:
            served.close()

    async def text(self, prompt: Any, **fields: Any) -> str:
        events = await self.events(prompt, **fields)
        return "".join(event.text for event in events if isinstance(event, TextDelta))

    @property
    def model(self) -> ScriptedModel:
        model: Any = self.served.model
        return model

    def say(self, text: str) -> None:
        self.model.say(TOKENIZER(text)["input_ids"])


@pytest.fixture
async def house() -> AsyncIterator[House]:
    with served_model(tiny_model(TOKENIZER), TOKENIZER) as served:
        yield House(served)


async def test_a_greedy_answer_is_that_of_generate(house: House) -> None:
    ids = TOKENIZER.apply_chat_template(list(CHAT.messages), add_generation_prompt=True, return_tensors="pt")
    expected = house.model.generate(**ids, max_new_tokens=20, do_sample=False)[0, ids["input_ids"].shape[1] :]
    events = await house.events(TokenPrompt(tuple(ids["input_ids"][0].tolist())), max_tokens=20)
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown == TOKENIZER.decode(expected, skip_special_tokens=True)
    assert events[-1] == Finish("length", ids["input_ids"].shape[1], 20)
    assert house.metrics.tokens == (ids["input_ids"].shape[1], 20)
    assert (house.metrics.first_tokens, house.metrics.queue_waits, house.metrics.waiting_now) == (1, 1, 0)


async def test_the_end_token_ends_the_answer_and_does_not_show(house: House) -> None:
    house.say("Paris é.")
    events = await house.events(CHAT)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Paris é."
    finish = events[-1]
    assert isinstance(finish, Finish) and finish.reason == "stop"
    assert finish.completion_tokens == len("Paris é.".encode()) + 1


async def test_stop_text_is_cut_and_ends_the_generation(house: House) -> None:
    house.say("one two three")
    events = await house.events(TextPrompt("x"), stop=(" two",))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "one"
    assert events[-1] == Finish("stop", 1, len("one two"))
    assert house.model.step <= len("one two") + 1


async def test_reasoning_and_calls_come_as_events(house: House) -> None:
    house.say('<think>hm</think>ok <tool_call>{"name": "f", "arguments": {}}</tool_call>')
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    events = await house.events(ChatPrompt(CHAT.messages, tools=(tool,)))
    assert [e for e in events if isinstance(e, ToolCall)] == [ToolCall("f", "{}")]
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "hm"
    assert isinstance(events[-1], Finish) and events[-1].reason == "tool_calls"


async def test_several_prompts_are_answered_in_order(house: House) -> None:
    events = await house.events(TextPrompt("a"), TextPrompt("bc"), max_tokens=3)
    assert [e.prompt_tokens for e in events if isinstance(e, Finish)] == [1, 2]
    assert house.leases[0].released.wait(5)


@pytest.mark.parametrize(
    ("prompt", "where"),
    [
        (TextPrompt("x" * CONTEXT_TOKENS), "prompt"),
        (TokenPrompt((5,) * CONTEXT_TOKENS), "prompt"),
        (ChatPrompt(({"role": "user", "content": "x" * (CONTEXT_TOKENS - AROUND)},)), "messages"),
        (ChatPrompt(({"role": "user", "content": "x" * (CONTEXT_TOKENS - AROUND)},), where="input"), "input"),
    ],
)
async def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(
    house: House, prompt: Any, where: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        await house.events(prompt)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", where)
    assert caught.value.details == {"context_tokens": CONTEXT_TOKENS, "prompt_tokens": CONTEXT_TOKENS}
    assert house.leases[0].released.is_set()


@pytest.mark.parametrize("asked", [None, 10 * CONTEXT_TOKENS])
async def test_an_answer_ends_where_the_context_does(house: House, asked: int | None) -> None:
    house.say("y" * 1000)
    events = await house.events(TextPrompt("x" * 100), max_tokens=asked)
    assert events[-1] == Finish("length", 100, CONTEXT_TOKENS - 100)


async def test_temperature_samples_though_the_models_own_config_is_greedy(house: House) -> None:
    prompt, greedy = TextPrompt("abc"), await house.text(TextPrompt("abc"), max_tokens=12)
    hot = [await house.text(prompt, max_tokens=12, sampling=Sampling(temperature=2.0)) for _ in range(3)]
    assert len({greedy, *hot}) > 2
    assert await house.text(prompt, max_tokens=12, sampling=Sampling(temperature=0)) == greedy


async def test_a_seed_repeats_though_another_model_samples_meanwhile(house: House) -> None:
    seeded: dict[str, Any] = {"max_tokens": 20, "sampling": Sampling(temperature=2.0, seed=5)}
    alone = await house.text(TextPrompt("abc"), **seeded)
    with served_model(tiny_model(TOKENIZER, seed=1), TOKENIZER) as other:
        noise = House(other)
        noisy = asyncio.gather(
            *(
                noise.text(TextPrompt("z"), max_tokens=30, sampling=Sampling(temperature=2.0))
                for _ in range(3)
            )
        )
        assert await house.text(TextPrompt("abc"), **seeded) == alone
        await noisy
    assert (
        await house.text(TextPrompt("abc"), max_tokens=20, sampling=Sampling(temperature=2.0, seed=6))
        != alone
    )


async def test_beam_search_answers_at_its_end(house: House) -> None:
    config = {"num_beams": 2, "max_new_tokens": 6}
    got = await house.events(TextPrompt("abc"), sampling=Sampling(generation_config=config))
    ids = TOKENIZER("abc", return_tensors="pt")
    expected = house.model.generate(**ids, num_beams=2, max_new_tokens=6, do_sample=False)[0, 3:]
    assert "".join(e.text for e in got if isinstance(e, TextDelta)) == TOKENIZER.decode(
        expected, skip_special_tokens=True
    )


async def test_a_token_for_which_the_model_has_no_row_is_refused(house: House) -> None:
    rows = house.model.config.vocab_size
    with pytest.raises(BadRequest, match=f"token {rows} ") as caught:
        await house.events(
            TextPrompt("x"), sampling=Sampling(generation_config={"bad_words_ids": [[1], [2, rows]]})
        )
    assert caught.value.param == "generation_config.bad_words_ids"
    larger = copy.deepcopy(TOKENIZER)
    larger.add_tokens(["<|more|>"])
    with (
        served_model(tiny_model(TOKENIZER), larger) as served,
        pytest.raises(BadRequest, match=f"token {rows} ") as caught,
    ):
        await House(served).events(TextPrompt("a <|more|>"))
    assert caught.value.param == "prompt"


async def test_template_variables_of_the_model_yield_to_those_of_the_request(house: House) -> None:
    house.template_kwargs = {"probe": "model", "enable_thinking": False}
    seen: list[int] = []
    for kwargs in ({}, {"probe": "a longer request"}):
        events = await house.events(ChatPrompt(CHAT.messages, template_kwargs=kwargs), max_tokens=1)
        seen += [event.prompt_tokens for event in events if isinstance(event, Finish)]
    assert seen[1] - seen[0] == len("a longer request") - len("model")


async def test_concurrent_requests_never_see_each_others_variables(house: House) -> None:
    prompts = [ChatPrompt(CHAT.messages, template_kwargs={"probe": "x" * n}) for n in range(8)]
    ends = await asyncio.gather(*(house.events(prompt, max_tokens=1) for prompt in prompts))
    counts = [end[-1].prompt_tokens for end in ends if isinstance(end[-1], Finish)]
    assert counts == [counts[0] + n for n in range(8)]


async def test_a_refusing_template_is_the_callers_fault(house: House) -> None:
    house.served.processor.chat_template = "{{ raise_exception('roles must alternate') }}"
    try:
        with pytest.raises(BadRequest, match="roles must alternate"):
            await house.events(CHAT)
    finally:
        house.served.processor.chat_template = byte_tokenizer().chat_template


@pytest.mark.parametrize(
    ("where", "param"), [("messages", "messages[0].content[0].image_url"), ("input", "input")]
)
async def test_an_image_for_a_text_model_is_refused(house: House, where: str, param: str) -> None:
    content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    with pytest.raises(BadRequest, match="text only") as caught:
        await house.events(ChatPrompt(({"role": "user", "content": content},), where=where))
    assert caught.value.param == param


async def test_a_model_that_listens_does_not_chat() -> None:
    listening = served_model(tiny_model(TOKENIZER), TOKENIZER, Modality.STT)
    with listening as served, pytest.raises(BadRequest, match="transcriptions"):
        await House(served).events(CHAT)


@pytest.mark.parametrize("prompt", [TokenPrompt((0, 10**6)), TextPrompt("")])
async def test_a_prompt_without_meaning_is_refused(house: House, prompt: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        await house.events(prompt)
    assert caught.value.param == "prompt"


async def test_a_bias_on_a_token_that_does_not_exist_is_refused(house: House) -> None:
    with pytest.raises(BadRequest, match="logit_bias"):
        await house.events(TextPrompt("a"), sampling=Sampling(logit_bias={10**6: 1.0}))


async def test_a_fault_while_generating_is_ours_and_frees_everything(house: House) -> None:
    house.model.fails_at = 2
    with pytest.raises(ServerFault):
        await house.events(TextPrompt("a"), max_tokens=10)
    assert house.leases[0].released.wait(5)
    house.model.fails_at = None
    assert await house.text(TextPrompt("a"), max_tokens=2) is not None


async def begun(house: House, **fields: Any) -> tuple[ServedRequest, TextAnswer]:
    served = house.request()
    return served, await served.start(GenerationRequest(None, (TextPrompt("a"),), **fields))


async def test_closing_ends_the_generation_at_the_next_token(house: House) -> None:
    reached, gate, model = threading.Event(), threading.Event(), house.model
    house.say("y" * 100)
    forward = model.forward

    def slow(*args: Any, **kwargs: Any) -> Any:
        if model.step == 5:
            reached.set()
            gate.wait(20)
        return forward(*args, **kwargs)

    model.forward = slow  # type: ignore[method-assign]
    served, _ = await begun(house)
    assert await asyncio.to_thread(reached.wait, 20)
    served.close()
    assert not house.leases[0].released.is_set()  # the thread still uses the model
    gate.set()
    assert await asyncio.to_thread(house.leases[0].released.wait, 5)
    assert model.step <= 7
    assert house.metrics.tokens[1] <= 7


async def test_a_request_that_waits_and_is_closed_never_runs(house: House) -> None:
    gate = threading.Event()
    house.served.executor.submit(gate.wait, 10)
    served = house.request()
    waiting = asyncio.create_task(served.start(GenerationRequest(None, (TextPrompt("a"),))))
    while not (house.metrics.waiting_now and served._works):
        await asyncio.sleep(0.01)
    waiting.cancel()
    served.close()
    assert house.leases[0].released.is_set()
    assert house.metrics.waiting_now == 0
    gate.set()
    assert house.model.step == 0


async def test_a_full_queue_is_busy_and_frees_up_again() -> None:
    with served_model(tiny_model(TOKENIZER), TOKENIZER) as served:
        house = House(served, max_queue=1)
        gate = threading.Event()
        served.executor.submit(gate.wait, 10)
        tasks = [asyncio.create_task(house.events(TextPrompt("a"), max_tokens=1)) for _ in range(2)]
        while house.metrics.waiting_now < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(Busy) as caught:
            await house.events(TextPrompt("a"), max_tokens=1)
        assert 1 <= (caught.value.retry_after or 0) <= 60
        assert house.leases[-1].released.is_set()
        gate.set()
        await asyncio.gather(*tasks)
        assert await house.events(TextPrompt("a"), max_tokens=1)


async def test_an_engine_goes_with_its_model() -> None:
    with served_model(tiny_model(TOKENIZER), TOKENIZER) as served:
        house = House(served)
        await house.text(TextPrompt("a"), max_tokens=2)
        engine = weakref.ref(house.engines.of(served))
        model = weakref.ref(served.model)
    house.leases.clear()
    del house.served, served
    gc.collect()
    assert engine() is None
    assert model() is None
