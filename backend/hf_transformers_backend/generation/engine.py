"""One engine per served model: prepares prompts off the loop, generates on the model's thread when it is
the request's turn, and stops at the next token when nobody listens.
"""

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from transformers import GenerationConfig, StoppingCriteriaList

from hf_transformers_backend.generation.assistant_text import AssistantText
from hf_transformers_backend.generation.batchable import row_sampling
from hf_transformers_backend.generation.batching import BatchedWork, Batching, room_in_pool
from hf_transformers_backend.generation.defaults import Defaults
from hf_transformers_backend.generation.detokenizer import Detokenizer
from hf_transformers_backend.generation.failure import explained_failure
from hf_transformers_backend.generation.generation_config import may_not_fit, tokens_in
from hf_transformers_backend.generation.image_fetch import NO_IMAGES, ImageFetcher
from hf_transformers_backend.generation.request import ChatPrompt, GenerationRequest, Prompt
from hf_transformers_backend.generation.sampling import build_generation_config, end_tokens, logits_processors
from hf_transformers_backend.generation.stream import Cancellation, EventStream, TokenStreamer
from hf_transformers_backend.generation.template import (
    EncodedPrompt,
    check_tokens,
    encode_prompt,
    images_in,
    room_for_answer,
    tokenizer_of,
)
from hf_transformers_backend.generation.turns import Ticket, Turns, Work
from hf_transformers_backend.request_id import carrying
from hf_transformers_backend.upstream.batch_pool import PoolLimits
from hf_transformers_backend.upstream.batching import BatchWorker
from hf_transformers_backend.upstream.parsing import AssistantParser, response_template
from hf_transformers_backend.upstream.served_model import ServedModel

T = TypeVar("T")
CountTokens = Callable[[int, int], None]
"""Called with the tokens of a prompt and of its answer."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Work that yields `events`."""

    events: EventStream
    work: Work


class Engine:
    """Generation on one served model. The methods are for the event loop; the work is done on two threads."""

    def __init__(
        self,
        served: ServedModel,
        turns: Turns,
        *,
        defaults: Defaults,
        pool: PoolLimits | None = None,
        images: ImageFetcher = NO_IMAGES,
        failed_with: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self.served = served
        self._failed_with = failed_with
        self.turns = turns
        self._defaults = defaults
        self._images = images
        self._batching = None if pool is None else Batching(served, pool)
        self._worker: BatchWorker | None = None
        # Prompts are prepared beside a running generation, one at a time: a tokenizer is not made for
        # several threads.
        self._prompts = ThreadPoolExecutor(1, thread_name_prefix=f"prompt-{served.key}")
        served.resources.callback(self._prompts.shutdown, wait=False)

    async def encode(self, prompt: Prompt) -> EncodedPrompt:
        """Fetch its images, template and tokenize. Raises BadRequest, also when the prompt fills the context,
        and Unavailable when the model's batch has died.
        """
        fetched = await self._images.fetch(images_in(self.served, prompt))
        encoded = await self.aside(lambda: encode_prompt(self.served, prompt, fetched))
        if self._batching is not None:
            self._worker = await self._batching.worker()
        self._room(len(encoded.ids), prompt.where)
        return encoded

    @property
    def batches(self) -> bool:
        """Whether the last prompt that was encoded joins a batch: several of them then run at once."""
        return self._worker is not None

    async def aside(self, work: Callable[[], T]) -> T:
        """Run work that touches no weights, on the thread beside the model's."""
        return await asyncio.get_running_loop().run_in_executor(
            self._prompts, carrying(lambda: self._translating(work))
        )

    def generate(
        self,
        ticket: Ticket,
        encoded: EncodedPrompt,
        prompt: Prompt,
        request: GenerationRequest,
        count: CountTokens,
    ) -> Generation:
        """Start a generation; it waits for the model's thread. Must be called on the event loop.

        `count` gets the tokens of the prompt and of the answer, also of one that is cut short, before the
        Finish is seen.
        """
        config = self._configured(encoded, request)
        events = EventStream(asyncio.get_running_loop())
        cancellation = Cancellation()
        stop = [*request.stop, *_stop_strings(config)]

        def read() -> TokenStreamer:
            text = AssistantText(
                *self._readers(encoded, prompt),
                stop=stop,
                most_tool_calls=None if request.parallel_tool_calls else 1,
            )
            return TokenStreamer(text, events, cancellation)

        def work() -> None:
            try:
                self._generate(encoded, request, config, read(), cancellation, count)
            except BaseException as error:  # the top of the thread's work: the reader gets it
                asked = "generation_config" if may_not_fit(request.sampling.generation_config) else None
                events.fail(self._explained(error, asked))

        if self._worker is not None:
            return Generation(
                events, self._join(self._worker, ticket, encoded, request, config, read(), events, count)
            )
        return Generation(events, Work(cancellation, self.turns.submit(ticket, work)))

    async def run(
        self, ticket: Ticket, work: Callable[[Cancellation], T], begin: Callable[[Work], None]
    ) -> T:
        """The result of other work on the model's thread; `begin` learns of it before it is awaited."""
        cancellation = Cancellation()
        job = self.turns.submit(ticket, lambda: self._translating(lambda: work(cancellation)))
        begin(Work(cancellation, job))
        return await asyncio.wrap_future(job)

    def _translating(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except Exception as error:
            raise self._explained(error) from None

    def _explained(self, error: BaseException, values_of: str | None = None) -> BaseException:
        """What the reader gets for what torch work raised."""
        self._failed_with(error)
        return explained_failure(error, values_of)

    def _configured(self, encoded: EncodedPrompt, request: GenerationRequest) -> GenerationConfig:
        """Raises BadRequest for what the model cannot take."""
        check_tokens(self.served, request.sampling.logit_bias, "logit_bias")
        for where, tokens in tokens_in(request.sampling.generation_config or {}):
            check_tokens(self.served, tokens, where)
        return build_generation_config(
            request.sampling,
            self.served.model.generation_config,
            max_tokens=request.max_tokens,
            default=self._defaults.max_tokens,
            room=self._room(len(encoded.ids), request.prompts[0].where),
        )

    def _room(self, prompt_tokens: int, where: str) -> int | None:
        """Tokens that the context, and the pool of a batch, leave for an answer; BadRequest for none."""
        room = room_for_answer(self.served, prompt_tokens, where)
        if self._worker is None:
            return room
        pool = room_in_pool(self._worker, prompt_tokens, where)
        return pool if room is None else min(room, pool)

    def _join(
        self,
        worker: BatchWorker,
        ticket: Ticket,
        encoded: EncodedPrompt,
        request: GenerationRequest,
        config: GenerationConfig,
        streamer: TokenStreamer,
        events: EventStream,
        count: CountTokens,
    ) -> Work:
        """Put the request into the model's batch. Raises BadRequest for what a batch cannot honor."""
        sampling = row_sampling(request.sampling, config)
        ends = end_tokens(config, self.served.model.generation_config)
        prompt_tokens = len(encoded.ids)
        wait = self.turns.wait(ticket)

        def over() -> None:
            wait.over(begun=False)
            count(prompt_tokens, streamer.tokens)

        job = BatchedWork(
            worker,
            f"batched-{uuid.uuid4().hex}",
            self.served.executor,
            streamer,
            begin=lambda: wait.over(begun=True),
            finish=lambda: streamer.finish(prompt_tokens=prompt_tokens, ended=streamer.last in ends),
            fail=lambda error: events.fail(self._explained(error)),
            over=over,
        )
        job.join(encoded.ids, max_new_tokens=config.max_new_tokens or 1, ends=ends, sampling=sampling)
        return job

    def _generate(
        self,
        encoded: EncodedPrompt,
        request: GenerationRequest,
        config: GenerationConfig,
        streamer: TokenStreamer,
        cancellation: Cancellation,
        count: CountTokens,
    ) -> None:
        model = self.served.model
        prompt_tokens = len(encoded.ids)
        ends = end_tokens(config, model.generation_config)
        processors = logits_processors(
            self._defaults.seeded(request.sampling),
            config,
            prompt_tokens=prompt_tokens,
            device=model.device,
        )
        if self._defaults.static_cache and config.cache_implementation is None:
            # What makes `generate` compile the steps where the device and the model allow it.
            config.cache_implementation = "static"
        beams = (config.num_beams or 1) > 1
        try:
            sequences = model.generate(
                **self._inputs(encoded),
                generation_config=config,
                logits_processor=processors,
                stopping_criteria=StoppingCriteriaList([cancellation]),
                streamer=None if beams else streamer,
                **({"generation_mode": "text"} if hasattr(model, "has_talker") else {}),
            )
            if beams:  # a search over sequences has nothing to say before its end
                streamer.put(sequences[:, :prompt_tokens])
                for token in sequences[0, prompt_tokens:].tolist():
                    streamer.take(token)
        finally:
            count(prompt_tokens, streamer.tokens)
        streamer.finish(prompt_tokens=prompt_tokens, ended=streamer.last in ends)

    def _inputs(self, encoded: EncodedPrompt) -> dict[str, Any]:
        model = self.served.model
        if encoded.tensors:
            return {
                name: value.to(model.device, model.dtype if value.is_floating_point() else value.dtype)
                for name, value in encoded.tensors.items()
            }
        ids = torch.tensor([encoded.ids], dtype=torch.long, device=model.device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def _readers(self, encoded: EncodedPrompt, prompt: Prompt) -> tuple[Detokenizer, AssistantParser | None]:
        tokenizer = tokenizer_of(self.served)
        parser = None
        if isinstance(prompt, ChatPrompt):
            template = response_template(
                self.served.processor,
                self.served.model,
                tools=bool(prompt.tools),
                reasoning=self._defaults.parses_reasoning,
            )
            if template is not None:
                # Where reasoning is not taken apart, a block of it in the prompt is no part of the answer.
                begun = (encoded.text or "") if self._defaults.parses_reasoning else ""
                parser = AssistantParser(template, prompt=begun, tools=list(prompt.tools) or None)
        return Detokenizer(tokenizer, skip_special_tokens=parser is None), parser


def _stop_strings(config: Any) -> list[str]:
    """Stop texts of the model's own config are cut like the request's.

    `generate` would leave them in the answer.
    """
    stops, config.stop_strings = config.stop_strings, None
    return [stops] if isinstance(stops, str) else list(stops or ())
