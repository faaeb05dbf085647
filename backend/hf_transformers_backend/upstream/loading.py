"""Loading a generative model with upstream's `ModelManager`, one manager per load.

Replaced, in transformers 5.24:
* `load_model_and_processor` and its cache of `TimedModel`s: residency owns the lifetime. Upstream's timer
  threads start at the request's begin and unload models that are in use. For good.
* `_load_model` for GGUF files whose configuration names no architecture: `TypeError: 'NoneType' object is not
  subscriptable` since 5.18. Until upstream picks the class by itself.
* `_load_model` for models with code of their own: it looks for their class in transformers itself and raises
  `AttributeError`. Until it asks the repository's `auto_map`.
* `get_model_modality`, which knows no speech models: their route does not ask. Until it returns Modality.STT.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSpeechSeq2Seq,
    PreTrainedModel,
)
from transformers.cli.serving.model_manager import ModelManager
from transformers.cli.serving.utils import Modality
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
    MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
)

from hf_transformers_backend.errors import BadRequest, FlexServError, Unprocessable
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import Progress, Source
from hf_transformers_backend.model_settings import LoadSettings
from hf_transformers_backend.upstream.placement import (
    bring_into_memory,
    bytes_per_device,
    check_placement,
    resolve_device,
)
from hf_transformers_backend.upstream.processing import usable_processor
from hf_transformers_backend.upstream.progress import progress_of_weights
from hf_transformers_backend.upstream.served_model import ServedModel

GENERATIVE = frozenset(
    {
        *MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(),
        *MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values(),
        *MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.values(),
    }
)
OWN_CODE = (AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForSpeechSeq2Seq)
"""The auto classes under which code of a repository's own may offer what is served here."""
SPEECH = frozenset(MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES.values())


class CheckpointLoader(ModelManager):
    """Upstream's loading for one set of load-time settings; holds no model."""

    def __init__(self, device: str, settings: LoadSettings) -> None:
        super().__init__(
            device=device,
            dtype=settings.dtype,
            trust_remote_code=settings.trust_remote_code,
            attn_implementation=settings.attn_implementation,
            quantization=settings.quantization,
            model_timeout=-1,
        )

    def _load_model(
        self,
        model_id_and_revision: str,
        tqdm_class: type | None = None,
        progress_callback: Any = None,
        gguf_file: str | None = None,
    ) -> PreTrainedModel:
        if gguf_file is not None:
            return self._load_as(AutoModelForCausalLM, model_id_and_revision, gguf_file=gguf_file)
        if self.trust_remote_code:
            config = AutoConfig.from_pretrained(model_id_and_revision, trust_remote_code=True)
            own = _class_of_own_code(config)
            if own is not None:
                quantization = self.get_quantization_config()
                extra = {} if quantization is None else {"quantization_config": quantization}
                return self._load_as(own, model_id_and_revision, **extra)
        return super()._load_model(model_id_and_revision, tqdm_class, progress_callback)

    def _load_as(self, auto_class: Any, path: str, **extra: Any) -> PreTrainedModel:
        model: PreTrainedModel = auto_class.from_pretrained(
            path,
            dtype=self.dtype,
            device_map=self.device,
            attn_implementation=self.attn_implementation,
            trust_remote_code=self.trust_remote_code,
            **extra,
        )
        return model

    def load(
        self, identity: ModelIdentity, source: Source, progress: Progress
    ) -> tuple[PreTrainedModel, Any]:
        """The model and its processor; raises Unprocessable, and what upstream and `progress` raise."""
        path = str(source.path)
        if source.gguf_file is None:
            processor = usable_processor(identity, lambda: self._load_processor(path))
        else:  # the tokenizer is in the file, which is good or damaged as a whole
            processor = self._load_processor(path, gguf_file=source.gguf_file)
        with progress_of_weights(progress):
            model = self._load_model(path, gguf_file=source.gguf_file)
        check_placement(model, self.device)
        bring_into_memory(model, progress)
        return model, processor


def load_served_model(
    identity: ModelIdentity,
    source: Source,
    settings: LoadSettings,
    device: str,
    executor: ThreadPoolExecutor,
    progress: Progress,
    key: str,
) -> ServedModel:
    """Load a generative or speech model. Raises Unprocessable for what is neither, BadRequest for a bad
    setting.
    """
    if source.gguf_file is None:
        _check_architecture(identity, source, settings)
    try:
        loader = CheckpointLoader(resolve_device(device), settings)
    except ValueError as error:
        raise BadRequest(f"{identity} cannot be loaded as asked: {error}") from None
    model, processor = loader.load(identity, source, progress)
    return ServedModel(
        model=model,
        processor=processor,
        modality=_modality(model, processor),
        key=key,
        executor=executor,
        weights_on=bytes_per_device(model),
        commit=source.commit,
    )


def _check_architecture(identity: ModelIdentity, source: Source, settings: LoadSettings) -> None:
    """Refuse what could not be served, before its weights are read."""
    try:
        config = AutoConfig.from_pretrained(str(source.path), trust_remote_code=settings.trust_remote_code)
    except (ValueError, KeyError) as error:
        raise _unsupported(identity, error) from None
    architectures = getattr(config, "architectures", None) or []
    if not architectures:
        raise Unprocessable(f"the config.json of {identity} names no architecture", param="model")
    ships_code = bool(getattr(config, "auto_map", None))
    if architectures[0] in GENERATIVE | SPEECH or (ships_code and settings.trust_remote_code):
        return
    if ships_code and not hasattr(transformers, architectures[0]):
        raise _own_code(identity)
    raise Unprocessable(
        f"{identity} is a {architectures[0]}, which generates neither text nor transcripts"
        " (an encoder is loaded with kind 'embedding')",
        param="model",
    )


def _class_of_own_code(config: Any) -> Any:
    """The auto class that a repository with code of its own names for its model; None where there is none."""
    named = getattr(config, "auto_map", None) or {}
    architecture = (getattr(config, "architectures", None) or [""])[0]
    if hasattr(transformers, architecture):
        return None
    return next((one for one in OWN_CODE if one.__name__ in named), None)


def _own_code(identity: ModelIdentity) -> FlexServError:
    return Unprocessable(
        f"{identity} ships its own code; it needs trust_remote_code, if you trust it",
        param="trust_remote_code",
    )


def _unsupported(identity: ModelIdentity, error: Exception) -> FlexServError:
    if "trust_remote_code" in str(error):
        return _own_code(identity)
    return Unprocessable(
        f"transformers {transformers.__version__} does not know the architecture of {identity}", param="model"
    )


def _modality(model: PreTrainedModel, processor: Any) -> Modality:
    if type(model).__name__ in SPEECH:
        return Modality.STT
    try:
        return ModelManager.get_model_modality(model, processor)
    except ValueError:
        # Code of the repository's own; what generates text from text is the only safe guess.
        return Modality.LLM
