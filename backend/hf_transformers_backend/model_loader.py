"""The real loader: the hub or a folder, then transformers or sentence-transformers, chosen by the kind."""

import itertools
import logging
from concurrent.futures import ThreadPoolExecutor

from safetensors import SafetensorError

from hf_transformers_backend.checkpoint import needed_bytes, pool_bytes
from hf_transformers_backend.device_fault import is_out_of_memory
from hf_transformers_backend.download_room import DownloadRoom
from hf_transformers_backend.errors import FlexServError, ServerFault, Unprocessable
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import OutOfMemory, Progress, Servable, Source
from hf_transformers_backend.model_settings import LoadSettings

logger = logging.getLogger(__name__)


class ModelLoader:
    """Implements residency's Loader. The heavy libraries are imported with the first load."""

    def __init__(self, device: str, cache_limit_bytes: int | None = None, pool_tokens: int = 0) -> None:
        """`pool_tokens` is how many tokens the pool of a batched model will hold, 0 where nobody knows."""
        self._device = device
        self._pool_tokens = pool_tokens
        self._room = DownloadRoom(cache_limit_bytes)
        self._numbers = itertools.count(1)

    def expected_bytes(self, identity: ModelIdentity, settings: LoadSettings) -> int | None:
        from hf_transformers_backend.hub_metadata import expected_bytes

        return expected_bytes(identity, settings)

    def fetch(self, identity: ModelIdentity, settings: LoadSettings, progress: Progress) -> Source:
        from hf_transformers_backend.hub import find_files

        return find_files(identity, progress, self._room)

    def needed_bytes(self, identity: ModelIdentity, source: Source, settings: LoadSettings) -> int | None:
        weights = needed_bytes(source, settings)
        if weights is None or identity.kind == "embedding" or not self._pool_tokens:
            return weights
        return weights + pool_bytes(source, settings, self._pool_tokens)

    def load(
        self,
        identity: ModelIdentity,
        source: Source,
        settings: LoadSettings,
        executor: ThreadPoolExecutor,
        progress: Progress,
    ) -> Servable:
        from hf_transformers_backend.upstream.progress import use_our_logging

        use_our_logging()

        if settings.quantization is not None and (
            source.gguf_file is not None or identity.kind == "embedding"
        ):
            what = "a GGUF file is quantized as it is" if source.gguf_file else "encoders are not quantized"
            raise Unprocessable(f"{identity}: {what}; leave quantization out", param="quantization")
        key = f"{identity.kind}:{identity}#{next(self._numbers)}"
        try:
            if identity.kind == "embedding":
                from hf_transformers_backend.embeddings import load_encoder

                return load_encoder(identity, source, settings, self._device, executor, progress, key)
            from hf_transformers_backend.upstream.loading import load_served_model

            return load_served_model(identity, source, settings, self._device, executor, progress, key)
        except Exception as error:
            if is_out_of_memory(error):
                logger.warning("loading %s: %s", identity, error)
                raise OutOfMemory(f"memory ran out while {identity} was loaded") from error
            explained = _explained(identity, source, settings, error)
            if explained is None:
                raise
            logger.warning("loading %s: %s", identity, error)
            raise explained from None


def _missing_package(identity: ModelIdentity, settings: LoadSettings) -> FlexServError:
    """The libraries import what a setting or a model's own code needs while they load."""
    for name in ("quantization", "attn_implementation"):
        wanted = getattr(settings, name)
        if wanted is not None and (name == "quantization" or wanted not in ("eager", "sdpa")):
            return Unprocessable(
                f"{identity}: {name} {wanted} needs a package that is not installed here, or another version"
                " of it; the server's log names it. Install it, or ask for something else",
                param=name,
            )
    return Unprocessable(
        f"{identity} needs a package that is not installed here; the server's log names it", param="model"
    )


def _explained(
    identity: ModelIdentity, source: Source, settings: LoadSettings, error: Exception
) -> FlexServError | None:
    """Our error for what the libraries raise; None where only the log can tell."""
    if isinstance(error, ImportError):
        return _missing_package(identity, settings)
    if isinstance(error, ValueError):
        return _wrong_value(identity, source, settings, error)
    if isinstance(error, (OSError, SafetensorError)):
        return ServerFault(
            f"the files of {identity} cannot be read: they are incomplete or damaged", code="load_failed"
        )
    return None


def _wrong_value(
    identity: ModelIdentity, source: Source, settings: LoadSettings, error: ValueError
) -> FlexServError | None:
    if settings.attn_implementation is not None and "attention implementation" in str(error):
        return Unprocessable(
            f"{identity} cannot use attn_implementation {settings.attn_implementation}; leave it out",
            param="attn_implementation",
        )
    if source.gguf_file is not None:
        return ServerFault(
            f"{identity} cannot be read: the file is damaged, or its architecture cannot be loaded from GGUF",
            code="load_failed",
        )
    return None
