"""What the server adds to requests that do not say, through the real `generate`; and the pool of a batch."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hf_transformers_backend.generation.defaults import Defaults
from hf_transformers_backend.generation.engines import Engines
from hf_transformers_backend.generation.events import ReasoningDelta, TextDelta
from hf_transformers_backend.generation.request import ChatPrompt, Sampling, TextPrompt
from hf_transformers_backend.settings import load_settings
from hf_transformers_backend.upstream.batch_pool import CPU_BATCH_TOKENS, CPU_PAGES, PoolLimits, pool_config
from hf_transformers_backend.upstream.batching import BatchWorker
from transformers import StaticCache

from tests.support.tiny_models import byte_tokenizer, served_model, tiny_model
from tests.unit.backend.generation.test_engine import CHAT, House

TOKENIZER = byte_tokenizer()
SAMPLED: dict[str, Any] = {"max_tokens": 16, "sampling": Sampling(temperature=2.0)}


class DefaultsHouse(House):
    """A house whose server has defaults, and a record of the caches that its model worked with."""

    caches: list[str]

    def take(self, defaults: Defaults) -> None:
        self.engines = Engines(max_queue=64, metrics=self.metrics, defaults=defaults)


@pytest.fixture
async def house() -> AsyncIterator[DefaultsHouse]:
    model = tiny_model(TOKENIZER)
    with served_model(model, TOKENIZER) as served:
        house = DefaultsHouse(served)
        house.caches = []
        forward = model.forward

        def noting(*args: Any, **kwargs: Any) -> Any:
            house.caches.append(type(kwargs.get("cache")).__name__)
            return forward(*args, **kwargs)

        model.forward = noting  # type: ignore[method-assign]
        yield house


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, {}),
        ({"reasoning": "on"}, {"enable_thinking": True}),
        ({"reasoning": "off"}, {"enable_thinking": False}),
        ({"chat_template_kwargs": '{"a": {"b": [1]}}'}, {"a": {"b": [1]}}),
        (
            {"chat_template_kwargs": '{"a": 1, "enable_thinking": true}', "reasoning": "off"},
            {"a": 1, "enable_thinking": False},
        ),
        (
            {"chat_template_kwargs": '{"a": 1, "enable_thinking": true}', "reasoning": "auto"},
            {"a": 1, "enable_thinking": True},
        ),
    ],
)
def test_the_servers_template_variables(flags: dict[str, Any], expected: Mapping[str, Any]) -> None:
    defaults = Defaults.of(load_settings(**flags))
    assert defaults.template_kwargs == expected
    assert defaults.parses_reasoning == (flags.get("reasoning") != "off")


@pytest.mark.parametrize(
    ("server", "model", "request_", "expected"),
    [
        ({"v": "s"}, {}, {}, {"v": "s"}),
        ({"v": "s"}, {"v": "m"}, {}, {"v": "m"}),
        ({"v": "s"}, {"v": "m"}, {"v": "r"}, {"v": "r"}),
        ({"v": "s"}, {}, {"v": "r"}, {"v": "r"}),
        ({"a": 1}, {"b": 2}, {"c": 3}, {"a": 1, "b": 2, "c": 3}),
        ({"v": True}, {"v": False}, {}, {"v": False}),
        ({"v": "s"}, {"v": None}, {}, {"v": "s"}),
        ({"v": None}, {}, {"v": None}, {}),
    ],
)
def test_the_request_wins_over_its_model_and_that_over_the_server(
    server: Mapping[str, Any],
    model: Mapping[str, Any],
    request_: Mapping[str, Any],
    expected: Mapping[str, Any],
) -> None:
    prompt = Defaults(template_kwargs=server).prompted(
        ChatPrompt(CHAT.messages, template_kwargs=request_), model
    )
    assert isinstance(prompt, ChatPrompt)
    assert prompt.template_kwargs == expected
    plain = TextPrompt("x")
    assert Defaults(template_kwargs=server).prompted(plain, model) is plain


async def test_the_default_seed_is_for_requests_without_one(house: DefaultsHouse) -> None:
    prompt = TextPrompt("abc")
    house.take(Defaults(seed=5))
    first = await house.text(prompt, **SAMPLED)
    assert await house.text(prompt, **SAMPLED) == first
    five, six = ({**SAMPLED, "sampling": Sampling(temperature=2.0, seed=seed)} for seed in (5, 6))
    assert await house.text(prompt, **five) == first != await house.text(prompt, **six)
    house.take(Defaults())
    assert len({await house.text(prompt, **SAMPLED) for _ in range(4)}) > 1


async def test_compile_generates_with_a_cache_of_fixed_size_and_the_same_answer(house: DefaultsHouse) -> None:
    plain = await house.text(TextPrompt("abc"), max_tokens=8)
    assert set(house.caches) == {"DynamicCache"}
    house.caches.clear()
    house.take(Defaults(static_cache=True))
    assert await house.text(TextPrompt("abc"), max_tokens=8) == plain
    assert set(house.caches) == {StaticCache.__name__}
    # A cache that a request asks for itself is its own business.
    house.caches.clear()
    own = Sampling(generation_config={"cache_implementation": "dynamic", "max_new_tokens": 4})
    await house.text(TextPrompt("abc"), sampling=own)
    assert set(house.caches) == {"DynamicCache"}


@pytest.mark.parametrize("thinking", [True, False])
async def test_reasoning_off_leaves_the_text_as_it_is(house: DefaultsHouse, thinking: bool) -> None:
    """Also where the template has opened the block of thinking: that is no part of the answer."""
    said = "<think>hm</think>Paris." if not thinking else "hm</think>Paris."
    prompt = ChatPrompt(CHAT.messages, template_kwargs={"enable_thinking": thinking})
    for defaults, reasoning, text in (
        (Defaults(), "hm", "Paris."),
        (Defaults(parses_reasoning=False), "", said),
    ):
        house.take(defaults)
        house.say(said)
        events = await house.events(prompt, max_tokens=100)
        assert "".join(one.text for one in events if isinstance(one, ReasoningDelta)) == reasoning
        assert "".join(one.text for one in events if isinstance(one, TextDelta)) == text


@contextmanager
def batch_worker(limits: PoolLimits) -> Iterator[BatchWorker]:
    worker = BatchWorker(tiny_model(TOKENIZER), limits)
    try:
        yield worker
    finally:
        worker.stop()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (
            PoolLimits(),
            {"page_size": 256, "num_blocks": CPU_PAGES, "max_batch_tokens": CPU_BATCH_TOKENS},
        ),
        (PoolLimits(page_tokens=16, pages=8), {"page_size": 16, "num_blocks": 8}),
        (PoolLimits(step_tokens=33), {"max_batch_tokens": 33, "num_blocks": CPU_PAGES}),
        (PoolLimits(memory_fraction=0.25), {"max_memory_percent": 0.25, "num_blocks": None}),
        (PoolLimits(cuda_graphs=True), {"use_cuda_graph": True}),
        (PoolLimits(cuda_graphs=False, seed=3), {"use_cuda_graph": False, "seed": 3}),
    ],
)
def test_the_limits_of_a_pool_reach_upstream(limits: PoolLimits, expected: dict[str, Any]) -> None:
    config = pool_config(tiny_model(TOKENIZER), limits)
    assert {name: getattr(config, name) for name in expected} == expected


def test_two_pools_without_a_seed_draw_differently() -> None:
    seeds = {pool_config(tiny_model(TOKENIZER), PoolLimits()).seed for _ in range(3)}
    assert len(seeds) == 3


def test_a_real_pool_has_the_size_that_was_asked_for() -> None:
    with batch_worker(PoolLimits(page_tokens=16, pages=8)) as small:
        assert 16 <= small.capacity <= 16 * 8
    with batch_worker(PoolLimits(page_tokens=16, pages=16)) as larger:
        assert larger.capacity > small.capacity
    with batch_worker(PoolLimits(memory_fraction=1e-3, step_tokens=16)) as sized:
        assert sized.capacity > larger.capacity
