"""A GGUF file named as `folder:file.gguf` is a model like any other."""

from pathlib import Path

import pytest
from openai import OpenAI

from tests.support.models import model_path
from tests.support.server import RunningServer

WEIGHTS = 134_515_008


@pytest.mark.timeout(300)
def test_a_gguf_file_chats_and_counts_as_what_it_is_unpacked_to(shared_server: RunningServer) -> None:
    folder = Path(model_path("SmolLM2-135M-Instruct-GGUF"))
    (file,) = folder.glob("*.gguf")
    name = f"{folder}:{file.name}"
    client = shared_server.client
    load = {"model_id": name, "dtype": "bfloat16", "wait": 200}
    client.post("/v1/flexserv/models/load", json=load, timeout=210).raise_for_status()
    try:
        with OpenAI(base_url=f"{shared_server.base_url}/v1", api_key="none", max_retries=0) as openai:
            got = openai.chat.completions.create(
                model=name,
                messages=[{"role": "user", "content": "What is the capital of France?"}],
                temperature=0,
                max_tokens=12,
            )
        assert "Paris" in (got.choices[0].message.content or "")
        assert got.model == name
        entries = {
            entry["model_id"]: entry for entry in client.get("/v1/flexserv/models/loaded").json()["models"]
        }
        assert 0 <= entries[name]["bytes"] - 2 * WEIGHTS < 10_000  # some buffers beside the weights
        # The same file by another spelling of its path is the same model.
        other = client.post("/v1/flexserv/models/load", json={**load, "model_id": f"/.//{name[1:]}"})
        assert (other.status_code, other.json()["status"]) == (200, "already_loaded")
    finally:
        unloaded = client.post("/v1/flexserv/models/unload", json={"model_id": f"/.{name}"})
    assert unloaded.json()["unloaded"][0]["was_loaded"] is True
