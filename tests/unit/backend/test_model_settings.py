"""Which of the server's settings a model starts with."""

import pytest
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.model_settings import LoadSettings
from hf_transformers_backend.settings import load_settings


@pytest.mark.parametrize(
    ("identity", "quantization"),
    [
        (ModelIdentity("org/a"), "bnb-4bit"),
        (ModelIdentity("org/a", "embedding"), None),
        (ModelIdentity("org/a:b.Q4_1.gguf"), None),
        (ModelIdentity("/models/a:b.gguf"), None),
    ],
)
def test_the_servers_quantization_is_for_models_that_can_be_quantized(
    identity: ModelIdentity, quantization: str | None
) -> None:
    settings = load_settings(quantization="bnb-4bit", dtype="bfloat16", attn_implementation="eager")
    own = LoadSettings.of(settings, identity)
    assert (own.quantization, own.dtype, own.attn_implementation) == (quantization, "bfloat16", "eager")


def test_a_quantization_that_is_asked_for_stays_so_that_it_can_be_refused() -> None:
    own = LoadSettings.of(load_settings(), ModelIdentity("org/a", "embedding"))
    assert own.updated({"quantization": "bnb-8bit"}).quantization == "bnb-8bit"
