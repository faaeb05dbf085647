"""How large a hub model's weights will be, asked before they are downloaded: hours before its files tell."""

import logging

import httpx2
from huggingface_hub import HfApi, constants, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from hf_transformers_backend.checkpoint import weights_bytes
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.model_settings import LoadSettings

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10.0


def expected_bytes(identity: ModelIdentity, settings: LoadSettings) -> int | None:
    """Bytes of the weights once loaded; None for what is on disk already and where the hub does not tell.

    Raises nothing: what is wrong with the model or the hub is the download's to find.
    """
    name = identity.model_id
    if name.startswith("/") or name.endswith(".gguf") or constants.is_offline_mode():
        return None
    try:
        if isinstance(try_to_load_from_cache(name, "config.json", revision=identity.revision), str):
            return None
        model = HfApi().model_info(
            name, revision=identity.revision or "main", expand=["safetensors"], timeout=TIMEOUT_SECONDS
        )
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, httpx2.HTTPError, OSError) as error:
        logger.debug("the hub does not tell the size of %s: %s", identity, error)
        return None
    if model.safetensors is None:
        return None
    return weights_bytes(model.safetensors.parameters, settings)
