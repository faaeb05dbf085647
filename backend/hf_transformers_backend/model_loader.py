"""The real loader: the hub or a folder, then transformers or sentence-transformers, chosen by the kind."""

import itertools
import logging
from concurrent.futures import ThreadPoolExecutor

from hf_transformers_backend.checkpoint import needed_bytes
from hf_transformers_backend.errors import InsufficientStorage, ServerFault
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import Progress, Servable, Source
from hf_transformers_backend.model_settings import LoadSettings

logger = logging.getLogger(__name__)


class ModelLoader:
    """Implements residency's Loader. The heavy libraries are imported with the first load."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._numbers = itertools.count(1)

    def fetch(self, identity: ModelIdentity, settings: LoadSettings, progress: Progress) -> Source:
        from hf_transformers_backend.hub import find_files

        return find_files(identity, progress)

    def needed_bytes(self, identity: ModelIdentity, source: Source, settings: LoadSettings) -> int | None:
        return needed_bytes(source, settings)

    def load(
        self,
        identity: ModelIdentity,
        source: Source,
        settings: LoadSettings,
        executor: ThreadPoolExecutor,
        progress: Progress,
    ) -> Servable:
        import torch
        from safetensors import SafetensorError

        from hf_transformers_backend.upstream.progress import use_our_logging

        use_our_logging()

        key = f"{identity.kind}:{identity}#{next(self._numbers)}"
        try:
            if identity.kind == "embedding":
                from hf_transformers_backend.embeddings import load_encoder

                return load_encoder(identity, source, settings, self._device, executor, progress, key)
            from hf_transformers_backend.upstream.loading import load_served_model

            return load_served_model(identity, source, settings, self._device, executor, progress, key)
        except (torch.OutOfMemoryError, MemoryError):
            raise InsufficientStorage(
                f"memory ran out while {identity} was loaded", code="insufficient_memory"
            ) from None
        except (OSError, SafetensorError) as error:
            logger.warning("loading %s: %s", identity, error)
            raise ServerFault(
                f"the files of {identity} cannot be read: they are incomplete or damaged", code="load_failed"
            ) from None
