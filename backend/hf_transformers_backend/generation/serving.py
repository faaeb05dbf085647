"""One request on its way through the model.

Lease, place in the queue, prompts, generations, and the end of them all.
"""

import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from hf_transformers_backend.generation.engine import Engine, Generation
from hf_transformers_backend.generation.engines import Engines
from hf_transformers_backend.generation.events import Event
from hf_transformers_backend.generation.request import GenerationRequest, Prompt
from hf_transformers_backend.generation.template import EncodedPrompt, tokenizer_of
from hf_transformers_backend.generation.turns import Ticket, Work, when_all_over
from hf_transformers_backend.identity import Kind


class LeaseLike(Protocol):
    """What residency gives for a model in use."""

    requested: str
    label: str
    cold: bool

    @property
    def model(self) -> Any: ...

    @property
    def chat_template_kwargs(self) -> Any: ...

    def release(self) -> None: ...


class Leases(Protocol):
    """Where leases come from: residency."""

    async def acquire(self, name: str | None, kind: Kind) -> Any: ...


@dataclass(frozen=True, slots=True)
class IndexedEvent:
    """An event and the prompt that it answers, counted from 0."""

    index: int
    event: Event


class ServedRequest:
    """Begin it, iterate over `events`, and close it in every case: that is what gives the model back."""

    def __init__(self, leases: Leases, engines: Engines, model: str | None) -> None:
        self._leases = leases
        self._engines = engines
        self._asked_model = model
        self._ends = ExitStack()
        self._works: list[Work] = []
        self._arrived = time.monotonic()
        self._first_seen = False
        self.lease: LeaseLike | None = None
        self.finished = False

    @property
    def label(self) -> str | None:
        """The model's label in metrics, once it is known."""
        return self.lease.label if self.lease is not None else None

    @property
    def cold(self) -> bool:
        """Whether this request waited for its model to load."""
        return self.lease is not None and self.lease.cold

    @property
    def seconds(self) -> float:
        """Since the request arrived."""
        return time.monotonic() - self._arrived

    async def admit(self) -> tuple[LeaseLike, Engine, Ticket]:
        """Get the model, loading it if need be, and a place in its queue.

        Raises what residency raises, or Busy.
        """
        with self._engines.metrics.waiting:
            lease: LeaseLike = await self._leases.acquire(self._asked_model, "serve")
        self._ends.callback(lease.release)
        self.lease = lease
        engine = self._engines.of(lease.model)
        ticket = engine.turns.admit()
        self._ends.callback(ticket.release)
        return lease, engine, ticket

    async def start(self, request: GenerationRequest) -> "TextAnswer":
        """Prepare every prompt and begin with the first.

        Everything that the caller got wrong is raised here.
        """
        lease, engine, ticket = await self.admit()
        defaults = self._engines.defaults
        prompts = [defaults.prompted(prompt, lease.chat_template_kwargs or {}) for prompt in request.prompts]
        encoded = [await engine.encode(prompt) for prompt in prompts]
        answer = TextAnswer(
            self, request, engine, ticket, list(zip(prompts, encoded, strict=True)), lease.requested
        )
        await answer.wait_for_first()
        return answer

    def begin(self, work: Work) -> None:
        """This is something more that `close` has to stop."""
        self._works.append(work)

    def saw_first_token(self) -> None:
        """Only the first call counts."""
        if not self._first_seen:
            self._first_seen = True
            self._engines.metrics.observe_first_token(self.label, self.cold, self.seconds)

    def count(self, prompt_tokens: int, generated_tokens: int) -> None:
        """Count the tokens of one prompt and its answer. From any thread."""
        self._engines.metrics.count_tokens(self.label, prompt=prompt_tokens, generated=generated_tokens)

    def close(self) -> None:
        """Stop what runs; give the place and the model back once the model's thread is done. Idempotent."""
        works, self._works = self._works, []
        for work in works:
            work.cancel()
        when_all_over(works, self._ends.pop_all().close)


class TextAnswer:
    """The events of one request, prompt after prompt."""

    def __init__(
        self,
        served: ServedRequest,
        request: GenerationRequest,
        engine: Engine,
        ticket: Ticket,
        prompts: list[tuple[Prompt, EncodedPrompt]],
        model: str,
    ) -> None:
        self._served = served
        self._request = request
        self._engine = engine
        self._ticket = ticket
        self._prompts = prompts
        self.model = model
        self._events = self._generate()
        self._first: IndexedEvent | None = None

    async def wait_for_first(self) -> None:
        """Until the model has begun to answer, or failed.

        What fails before the first byte is a proper HTTP error.
        """
        self._first = await anext(self._events)
        self._served.saw_first_token()

    async def events(self) -> AsyncIterator[IndexedEvent]:
        """All events in order; each prompt ends with its Finish."""
        if self._first is not None:
            first, self._first = self._first, None
            yield first
        async for event in self._events:
            yield event
        self._served.finished = True

    def prompt_text(self, index: int) -> str:
        """A prompt as text, for `echo`."""
        encoded = self._prompts[index][1]
        if encoded.text is not None:
            return encoded.text
        text: str = tokenizer_of(self._engine.served).decode(list(encoded.ids))
        return text

    async def _generate(self) -> AsyncIterator[IndexedEvent]:
        """One prompt after the other; in a batch all of them at once, still told in their order."""
        begun = [self._begin(*prompt) for prompt in self._prompts] if self._engine.batches else None
        for index, prompt in enumerate(self._prompts):
            generation = self._begin(*prompt) if begun is None else begun[index]
            async for event in generation.events:
                yield IndexedEvent(index, event)

    def _begin(self, prompt: Prompt, encoded: EncodedPrompt) -> Generation:
        generation = self._engine.generate(self._ticket, encoded, prompt, self._request, self._served.count)
        self._served.begin(generation.work)
        return generation
