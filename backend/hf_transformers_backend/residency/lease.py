"""The right to use a model: as long as one is held, the model's memory stays."""

from collections.abc import Callable, Mapping
from typing import Any

from hf_transformers_backend.identity import ModelIdentity


class Lease:
    """Held from before the first token until the last byte of an answer.

    `requested` is the name to echo, `label` the one for metrics, `cold` says that this request waited for a
    load. `release` may be called from any thread and more than once. A lease that is dropped unreleased is
    released by the garbage collector, as the last safety net.
    """

    def __init__(
        self,
        *,
        identity: ModelIdentity,
        requested: str,
        label: str,
        cold: bool,
        model: Any,
        chat_template_kwargs: Mapping[str, Any],
        on_release: Callable[[], None],
        on_lost: Callable[[Callable[[], None]], None],
    ) -> None:
        self.identity = identity
        self.requested = requested
        self.label = label
        self.cold = cold
        self.chat_template_kwargs = chat_template_kwargs
        self._model = model
        self._on_release: Callable[[], None] | None = on_release
        self._on_lost = on_lost

    @property
    def model(self) -> Any:
        """The ServedModel or Encoder. RuntimeError after the release: it may be gone."""
        if self._model is None:
            raise RuntimeError("the lease has been released")
        return self._model

    def release(self) -> None:
        """Give the model back."""
        self._model = None
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        # The collector may run inside any lock, so a lost lease is only handed over here, never released.
        if self._on_release is not None:
            self._on_lost(self._on_release)
