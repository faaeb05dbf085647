"""Continuous batching on a tiny model: the answers of the sequential engine, and the end of a worker."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hf_transformers_backend.errors import BadRequest, FlexServError, Unavailable
from hf_transformers_backend.generation.batchable import row_sampling, unbatchable
from hf_transformers_backend.generation.engines import Engines
from hf_transformers_backend.generation.events import Finish, TextDelta
from hf_transformers_backend.generation.request import GenerationRequest, Sampling, TextPrompt
from hf_transformers_backend.generation.sampling import build_generation_config
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import Source
from hf_transformers_backend.model_loader import ModelLoader
from hf_transformers_backend.model_settings import LoadSettings
from hf_transformers_backend.settings import load_settings
from hf_transformers_backend.upstream.batch_pool import CPU_PAGES, PoolLimits, pool_limits
from hf_transformers_backend.upstream.batching import RowSampling
from hf_transformers_backend.upstream.served_model import Modality, ServedModel
from transformers import GenerationConfig

from tests.support.eventually import eventually
from tests.support.tiny_models import CONTEXT_TOKENS, byte_tokenizer, served_model, tiny_model
from tests.unit.backend.generation.test_engine import House

TOKENIZER = byte_tokenizer()
GREEDY = GenerationConfig(do_sample=False, eos_token_id=7)
SAMPLING = GenerationConfig(do_sample=True, temperature=0.6, top_k=20, eos_token_id=7)


class BatchingHouse(House):
    """A house whose engine batches."""

    def __init__(self, served: ServedModel, max_queue: int = 64) -> None:
        super().__init__(served, max_queue)
        self.engines = Engines(max_queue=max_queue, metrics=self.metrics, pool=PoolLimits())


@pytest.fixture
async def house() -> AsyncIterator[BatchingHouse]:
    with served_model(tiny_model(TOKENIZER), TOKENIZER) as served:
        yield BatchingHouse(served)


def batch_threads() -> list[threading.Thread]:
    """Upstream names its thread after the method that it runs."""
    return [thread for thread in threading.enumerate() if "_run_generation_loop" in thread.name]


@pytest.mark.parametrize(
    ("sampling", "own", "row"),
    [
        (Sampling(), GREEDY, RowSampling()),
        (Sampling(), SAMPLING, RowSampling(False, 0.6, 20, 1.0)),
        (Sampling(temperature=0, seed=3), SAMPLING, RowSampling()),
        (Sampling(temperature=0.9, top_p=0.5), GREEDY, RowSampling(False, 0.9, None, 0.5)),
        (
            Sampling(generation_config={"do_sample": True, "top_k": 5}),
            GREEDY,
            RowSampling(False, 1.0, 5, 1.0),
        ),
        (Sampling(generation_config={"repetition_penalty": 1.0, "num_beams": 1}), GREEDY, RowSampling()),
    ],
)
def test_what_is_applied_per_request_reaches_the_batch(
    sampling: Sampling, own: GenerationConfig, row: RowSampling
) -> None:
    config = build_generation_config(sampling, own, max_tokens=None, default=None, room=None)
    assert row_sampling(sampling, config) == row


@pytest.mark.parametrize(
    ("sampling", "param", "word"),
    [
        (Sampling(presence_penalty=0.1), "presence_penalty", "presence_penalty"),
        (Sampling(frequency_penalty=-1.0), "frequency_penalty", "frequency_penalty"),
        (Sampling(logit_bias={3: 1.0}), "logit_bias", "logit_bias"),
        (Sampling(temperature=1.0, seed=0), "seed", "seed"),
        (Sampling(generation_config={"num_beams": 2}), "generation_config", "num_beams"),
        (Sampling(generation_config={"min_p": 0.1}), "generation_config", "min_p"),
        (Sampling(generation_config={"repetition_penalty": 1.2}), "generation_config", "repetition_penalty"),
        (Sampling(generation_config={"min_new_tokens": 5}), "generation_config", "min_new_tokens"),
    ],
)
def test_what_a_batch_would_drop_is_refused_by_name(sampling: Sampling, param: str, word: str) -> None:
    config = build_generation_config(sampling, GREEDY, max_tokens=None, default=None, room=None)
    with pytest.raises(BadRequest) as caught:
        row_sampling(sampling, config)
    assert caught.value.param == param and word in caught.value.message


def test_a_plain_generation_config_is_batchable() -> None:
    assert unbatchable(GenerationConfig()) is None
    assert unbatchable(GenerationConfig(repetition_penalty=1.05)) == "repetition_penalty"


async def test_requests_side_by_side_get_the_answers_they_get_alone(house: BatchingHouse) -> None:
    prompts = [TextPrompt(text) for text in ("a", "bcd", "xyz" * 9, "é")]
    with served_model(tiny_model(TOKENIZER), TOKENIZER) as alone:
        sequential = House(alone)
        expected = [await sequential.events(prompt, max_tokens=20) for prompt in prompts]
    hot = house.events(TextPrompt("q"), max_tokens=20, sampling=Sampling(temperature=2.0))
    *answers, _ = await asyncio.gather(*(house.events(prompt, max_tokens=20) for prompt in prompts), hot)
    for answer, wanted in zip(answers, expected, strict=True):
        assert text_of(answer) == text_of(wanted)
        assert answer[-1] == wanted[-1]
    prompt_tokens = sum(wanted[-1].prompt_tokens for wanted in expected) + 1
    assert house.metrics.tokens[0] == prompt_tokens
    assert (house.metrics.queue_waits, house.metrics.waiting_now) == (5, 0)
    assert len(batch_threads()) == 1
    assert all(lease.released.wait(5) for lease in house.leases)


async def test_temperature_samples_beside_greedy_requests(house: BatchingHouse) -> None:
    greedy = await house.text(TextPrompt("abc"), max_tokens=12)
    hot = [house.text(TextPrompt("abc"), max_tokens=12, sampling=Sampling(temperature=2.0)) for _ in range(3)]
    *sampled, again = await asyncio.gather(*hot, house.text(TextPrompt("abc"), max_tokens=12))
    assert again == greedy and len({greedy, *sampled}) > 2


async def test_the_end_token_ends_a_batched_answer_and_no_byte_is_lost(house: BatchingHouse) -> None:
    house.say("Paris é.")
    events = await house.events(TextPrompt("x"))
    assert text_of(events) == "Paris é."
    assert events[-1] == Finish("stop", 1, len("Paris é.".encode()) + 1)


async def test_stop_text_is_cut_and_leaves_the_batch(house: BatchingHouse) -> None:
    house.model.config.max_position_embeddings = 4096
    house.say("one two three" + "." * 4000)
    events = await house.events(TextPrompt("x"), stop=(" two",), max_tokens=4050)
    assert text_of(events) == "one"
    assert events[-1] == Finish("stop", 1, len("one two"))
    await idle(house)
    assert house.model.step < 4000


@pytest.mark.parametrize("asked", [None, 10 * CONTEXT_TOKENS])
async def test_a_batched_answer_ends_where_the_context_does(house: BatchingHouse, asked: int | None) -> None:
    house.say("y" * 1000)
    events = await house.events(TextPrompt("x" * 100), max_tokens=asked)
    assert events[-1] == Finish("length", 100, CONTEXT_TOKENS - 100)


async def test_a_gone_client_leaves_the_batch(house: BatchingHouse) -> None:
    house.model.config.max_position_embeddings = 4096
    house.say("y" * 4000)
    served = house.request()
    answer = await served.start(GenerationRequest(None, (TextPrompt("x"),), max_tokens=4000))
    await anext(answer.events())
    served.close()
    assert house.leases[0].released.is_set()
    await idle(house)
    assert house.model.step < 4000
    assert 0 < house.metrics.tokens[1] < 4000
    house.say("ok")
    assert await house.text(TextPrompt("x")) == "ok"


async def test_a_prompt_beyond_the_pool_is_refused_before_it_ends_the_worker(house: BatchingHouse) -> None:
    house.model.config.max_position_embeddings = 1_000_000
    tokens = CPU_PAGES * 256
    with pytest.raises(BadRequest) as caught:
        await house.events(TextPrompt("x" * tokens), max_tokens=2)
    assert caught.value.details == {"context_tokens": tokens, "prompt_tokens": tokens}
    assert text_of(await house.events(TextPrompt("x"), max_tokens=2)) is not None


async def test_a_request_that_fills_the_pool_to_its_last_token_is_answered(house: BatchingHouse) -> None:
    house.model.config.max_position_embeddings = 1_000_000
    house.say("yy")
    tokens = CPU_PAGES * 256 - 2
    assert (await house.events(TextPrompt("x" * tokens), max_tokens=9))[-1].prompt_tokens == tokens


async def test_requests_that_do_not_fit_the_pool_together_are_all_answered(house: BatchingHouse) -> None:
    house.model.config.max_position_embeddings = 1_000_000
    prompts = [TextPrompt(letter * (CPU_PAGES * 256 - 300)) for letter in "abc"]
    answers = await asyncio.gather(*(house.events(prompt, max_tokens=290) for prompt in prompts))
    assert [answer[-1].completion_tokens for answer in answers] == [290] * 3


async def test_the_model_can_be_freed_and_its_thread_ends() -> None:
    model = tiny_model(TOKENIZER)
    gone = weakref.ref(model)
    with served_model(model, TOKENIZER) as served:
        house = BatchingHouse(served)
        await house.events(TextPrompt("a"), max_tokens=3)
        assert len(batch_threads()) == 1
    assert batch_threads() == []
    del model, served, house
    gc.collect()
    assert gone() is None


async def test_a_stop_in_the_middle_of_an_answer_is_an_error_to_its_reader(house: BatchingHouse) -> None:
    house.model.config.max_position_embeddings = 4096
    house.say("y" * 4000)
    served = house.request()
    answer = await served.start(GenerationRequest(None, (TextPrompt("x"),)))
    await asyncio.to_thread(house.served.resources.close)
    with pytest.raises(Unavailable):
        async for _ in answer.events():
            pass
    served.close()
    assert house.leases[0].released.wait(5)


async def test_a_dead_worker_is_a_503_and_the_next_request_starts_it_anew(
    house: BatchingHouse, caplog: pytest.LogCaptureFixture
) -> None:
    house.model.fails_at = 3
    house.say("one two three")
    with pytest.raises(Unavailable) as first:
        await house.events(TextPrompt("x"))
    assert first.value.code == "batching_failed"
    assert "a fault of ours" in caplog.text
    house.model.fails_at = None
    house.say("one two three")
    assert text_of(await house.events(TextPrompt("x"))) == "one two three"
    assert all(lease.released.wait(20) for lease in house.leases)
    assert eventually(lambda: len(batch_threads()) == 1, 20)


async def test_the_pool_counts_among_the_models_bytes_for_as_long_as_it_exists(house: BatchingHouse) -> None:
    weights = house.served.bytes
    await house.events(TextPrompt("x"), max_tokens=1)
    tokens, layers, heads, size = CPU_PAGES * 256, 2, 2, 16
    pool = tokens * 2 * layers * heads * size * 4
    assert pool <= house.served.bytes - weights <= pool * 1.1
    assert house.served.devices == {"cpu": house.served.bytes}
    house.served.resources.close()
    assert house.served.bytes == weights


async def test_the_prompts_of_a_request_run_side_by_side_and_are_answered_in_order(
    house: BatchingHouse,
) -> None:
    house.model.fails_at = None
    prompts = [TextPrompt(text) for text in ("a", "bb", "ccc", "dddd")]
    alone = [text_of(await house.events(prompt, max_tokens=24)) for prompt in prompts]
    steps = house.model.step
    served = house.request()
    answer = await served.start(GenerationRequest(None, tuple(prompts), max_tokens=24))
    texts = ["", "", "", ""]
    order: list[int] = []
    async for item in answer.events():
        order.append(item.index)
        if isinstance(item.event, TextDelta):
            texts[item.index] += item.event.text
    served.close()
    assert (texts, order) == (alone, sorted(order))
    assert house.model.step - steps < steps * 0.8, "in turn they take as many as alone"
    assert house.leases[-1].released.wait(20)


@pytest.mark.parametrize("modality", [Modality.VLM, Modality.LLM])
async def test_models_that_cannot_be_batched_are_served_in_turn(
    modality: Modality, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model(TOKENIZER)
    if modality == Modality.LLM:
        model.generation_config.repetition_penalty = 1.3
    with served_model(model, TOKENIZER, modality) as served:
        house = BatchingHouse(served)
        seeded = {"sampling": Sampling(temperature=2.0, seed=5), "max_tokens": 8}
        assert await house.text(TextPrompt("x"), **seeded) == await house.text(TextPrompt("x"), **seeded)
    assert batch_threads() == [] and "one request after another" in caplog.text


async def test_a_refused_request_gives_its_place_back(house: BatchingHouse) -> None:
    with pytest.raises(FlexServError):
        await house.events(TextPrompt("x"), sampling=Sampling(presence_penalty=1))
    assert house.leases[0].released.is_set() and house.metrics.waiting_now == 0


def text_of(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def idle(house: BatchingHouse) -> None:
    """Until the batch has stopped to step."""
    seen = [-1]

    def stands() -> bool:
        before, seen[0] = seen[0], house.model.step
        return before == seen[0]

    await asyncio.to_thread(eventually, stands, 10, 0.3)


@pytest.mark.parametrize(
    ("flags", "on_cpu", "tokens"),
    [
        ({}, True, CPU_PAGES * 256),
        ({}, False, 0),
        ({"cb_num_blocks": 8}, False, 8 * 256),
        ({"cb_num_blocks": 8, "cb_block_size": 32}, True, 8 * 32),
        ({"cb_max_memory_percent": 0.1}, True, 0),
    ],
)
def test_the_size_of_a_pool_is_known_before_the_load(
    flags: dict[str, Any], on_cpu: bool, tokens: int
) -> None:
    limits = pool_limits(load_settings(continuous_batching=True, **flags))
    assert limits is not None and limits.known_tokens(on_cpu=on_cpu) == tokens
    assert pool_limits(load_settings(**flags)) is None


def test_admission_counts_the_pool_of_a_batched_model(tmp_path: Path) -> None:
    model = tiny_model(TOKENIZER)
    model.save_pretrained(tmp_path)
    source, settings = Source(tmp_path), LoadSettings()
    chat, encoder = ModelIdentity(str(tmp_path)), ModelIdentity(str(tmp_path), "embedding")
    plain, batching = ModelLoader("cpu"), ModelLoader("cpu", pool_tokens=1000)
    weights = plain.needed_bytes(chat, source, settings)
    assert weights == sum(p.numel() * 4 for p in model.parameters())
    pool = 1000 * 2 * 2 * 2 * 16
    assert batching.needed_bytes(chat, source, settings) == weights + 4 * pool
    assert batching.needed_bytes(chat, source, LoadSettings(dtype="bfloat16")) == weights // 2 + 2 * pool
    assert batching.needed_bytes(encoder, source, settings) == weights
