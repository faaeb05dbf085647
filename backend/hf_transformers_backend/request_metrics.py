"""Instruments that the request path writes to. Label values come from closed sets."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hf_transformers_backend.activity import INFERENCE_ROUTES

OTHER = "other"
MOST_MODELS = 500
"""Labels that one process makes; a client that may load anything could otherwise make ever more."""
REQUEST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
FIRST_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
QUEUE_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class RequestMetrics:
    """Thread-safe. `known_models` gives the labels of declared and resident models; others are `other`."""

    def __init__(self, registry: CollectorRegistry, known_models: Callable[[], Collection[str]]) -> None:
        self._known_models = known_models
        self._seen_models: set[str] = set()
        self._request = Histogram(
            "flexserv_request_duration_seconds",
            "Time from a request's arrival to its last byte; cold ones waited for a model to load.",
            ["route", "code", "model", "cold"],
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        self._queue_wait = Histogram(
            "flexserv_queue_wait_seconds",
            "Time that a request waited for its model to be free.",
            buckets=QUEUE_BUCKETS,
            registry=registry,
        )
        self._first_token = Histogram(
            "flexserv_time_to_first_token_seconds",
            "Time from a request's arrival to its first generated token.",
            ["model", "cold"],
            buckets=FIRST_TOKEN_BUCKETS,
            registry=registry,
        )
        self._generated = Counter(
            "flexserv_generated_tokens_total", "Tokens generated.", ["model"], registry=registry
        )
        self._prompt = Counter(
            "flexserv_prompt_tokens_total", "Tokens read from prompts.", ["model"], registry=registry
        )
        self._aborted = Counter(
            "flexserv_streams_aborted_total", "Streams that ended before their last token.", registry=registry
        )
        self._waiting = Gauge(
            "flexserv_requests_waiting",
            "Requests that wait for their model to be free or loaded.",
            registry=registry,
        )

    def observe_request(
        self, route: str, code: int | str, model: str | None, cold: bool, seconds: float
    ) -> None:
        """A request ended. `model` is the lease's label; None when there was no model."""
        route = route if route in INFERENCE_ROUTES else OTHER
        self._request.labels(route, str(code), self._label(model), _flag(cold)).observe(seconds)

    def observe_queue_wait(self, seconds: float) -> None:
        """A request got its turn after `seconds`."""
        self._queue_wait.observe(seconds)

    def observe_first_token(self, model: str | None, cold: bool, seconds: float) -> None:
        """The first token came `seconds` after the request."""
        self._first_token.labels(self._label(model), _flag(cold)).observe(seconds)

    def count_tokens(self, model: str | None, *, prompt: int = 0, generated: int = 0) -> None:
        """Add the tokens of one request."""
        label = self._label(model)
        self._prompt.labels(label).inc(prompt)
        self._generated.labels(label).inc(generated)

    def stream_aborted(self) -> None:
        """A stream ended before its last token: the client went, or generation failed."""
        self._aborted.inc()

    @property
    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts a request as waiting while the block runs."""
        with self._waiting.track_inprogress():
            yield

    def _label(self, model: str | None) -> str:
        if model is None or model in self._seen_models:
            return model or OTHER
        if len(self._seen_models) < MOST_MODELS and model in self._known_models():
            self._seen_models.add(model)
            return model
        return OTHER


def _flag(value: bool) -> str:
    return "true" if value else "false"
