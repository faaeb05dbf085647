"""Where accelerate has put a model, and whether that is what it was let in for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hf_transformers_backend.device_fault import is_out_of_memory
from hf_transformers_backend.upstream.placement import check_placement
from transformers import AutoModelForCausalLM

from tests.support.models import model_path


def placed(device_map: Mapping[str, str], offload: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        model_path("tiny-random-llama"), device_map=dict(device_map), offload_folder=str(offload)
    )


@pytest.mark.parametrize(
    ("device_map", "elsewhere"),
    [({"": "cpu"}, "cpu"), ({"model": "disk", "lm_head": "cpu"}, "cpu and disk")],
    ids=["all in RAM", "partly on disk"],
)
def test_a_model_for_gpus_that_lies_elsewhere_is_out_of_memory(
    tmp_path: Path, device_map: dict[str, str], elsewhere: str
) -> None:
    model = placed(device_map, tmp_path)

    with pytest.raises(MemoryError, match=f"no place but {elsewhere}$") as raised:
        check_placement(model, "auto")

    assert is_out_of_memory(raised.value), "room is made, and the load is tried once more"
    check_placement(model, "cpu")


def test_a_model_that_lies_on_gpus_alone_is_where_it_should_be(tmp_path: Path) -> None:
    model = placed({"": "cpu"}, tmp_path).to("meta")  # any device that is not the CPU
    model.hf_device_map = {"model": 0, "lm_head": 1}

    check_placement(model, "auto")
