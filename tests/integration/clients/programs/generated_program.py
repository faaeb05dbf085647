"""Calls the backend with the client that was generated from its OpenAPI document.

Every answer must come as the class that the document says, and say again what it said when it is written out.
Prints what differs, as JSON.
"""

import json
import sys
from datetime import datetime
from typing import Any

from flexserv_client import Client
from flexserv_client.api.flexserv import declared, info, load, loaded, readiness, resources, synced, unload
from flexserv_client.api.meta import liveness, reset
from flexserv_client.api.openai import (
    chat_completions,
    completions,
    embeddings,
    list_models,
    responses,
    retrieve_model,
    transcriptions,
)
from flexserv_client.models import (
    ChatCompletion,
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    DeclaredAnswer,
    DeclaredBody,
    DeclaredEntry,
    Done,
    EmbeddingsAnswer,
    EmbeddingsRequest,
    EmptyBody,
    ErrorAnswer,
    Info,
    Inventory,
    Liveness,
    LoadAnswer,
    LoadBody,
    ModelAnswer,
    ModelList,
    Readiness,
    Resources,
    ResponseObject,
    ResponsesRequest,
    TextCompletion,
    TranscriptionAnswer,
    TranscriptionRequest,
    UnloadAnswer,
    UnloadBody,
    VerboseTranscriptionAnswer,
)
from flexserv_client.types import File

address, chat_model, encoder, transcriber, sound = sys.argv[1:]
client = Client(base_url=address, timeout=60)
differences: dict[str, Any] = {}


def same(written: Any, sent: Any) -> bool:
    """Whether both say the same; a moment can be written in two ways."""
    if isinstance(written, dict) and isinstance(sent, dict):
        return written.keys() == sent.keys() and all(same(written[key], sent[key]) for key in sent)
    if isinstance(written, list) and isinstance(sent, list):
        return len(written) == len(sent) and all(map(same, written, sent))
    if isinstance(written, str) and isinstance(sent, str) and sent.endswith("Z"):
        return datetime.fromisoformat(written) == datetime.fromisoformat(sent)
    return written == sent


def check(name: str, call: Any, answer: type, status: int = 200, **arguments: Any) -> Any:
    """Call, note what is not as documented, and return the parsed answer."""
    reply = call.sync_detailed(client=client, **arguments)
    if reply.status_code != status or type(reply.parsed) is not answer:
        differences[name] = f"{reply.status_code} {type(reply.parsed).__name__} {reply.content!r}"
    elif not same(reply.parsed.to_dict(), json.loads(reply.content)):
        differences[name] = {"parsed": reply.parsed.to_dict(), "sent": json.loads(reply.content)}
    return reply.parsed


def upload() -> File:
    return File(payload=open(sound, "rb"), file_name="sound.wav", mime_type="audio/wav")


hello = ChatMessage(role="user", content="Hello")
check("reset at first", reset, Done, body=EmptyBody())
check("declared nothing", declared, DeclaredAnswer, body=DeclaredBody(models=[], hash_="0"))
check("liveness", liveness, Liveness)
check("readiness", readiness, Readiness)
check("not loaded", readiness, ErrorAnswer, status=503, model="org/absent")
check("info", info, Info)
check("resources", resources, Resources)
check("load", load, LoadAnswer, body=LoadBody(model_id=chat_model, served_name="ours", pin=True, wait=60))
check("load again", load, LoadAnswer, body=LoadBody(model_id=chat_model))
check("load absent", load, ErrorAnswer, status=404, body=LoadBody(model_id="org/absent", wait=60))
check(
    "load in the background", load, LoadAnswer, status=202, body=LoadBody(model_id=encoder, kind="embedding")
)
chat = check(
    "chat", chat_completions, ChatCompletion, body=ChatRequest(model="ours", messages=[hello], max_tokens=4)
)
if chat.model != "ours" or chat.usage.completion_tokens > 4:
    differences["chat's content"] = chat.to_dict()
check(
    "chat refused",
    chat_completions,
    ErrorAnswer,
    status=400,
    body=ChatRequest(messages=[hello], temperature=3.0),
)
check(
    "completion",
    completions,
    TextCompletion,
    body=CompletionRequest(model="ours", prompt=["a", "b"], max_tokens=4),
)
check(
    "response",
    responses,
    ResponseObject,
    body=ResponsesRequest(model="ours", input_="Hello", max_output_tokens=4),
)
vectors = check(
    "embeddings", embeddings, EmbeddingsAnswer, body=EmbeddingsRequest(model=encoder, input_=["a", "b"])
)
if [len(item.embedding) for item in vectors.data] != [384, 384]:
    differences["the vectors' length"] = [len(item.embedding) for item in vectors.data]
asked = EmbeddingsRequest(model=encoder, input_="a", encoding_format="base64")
check("embeddings in base64", embeddings, EmbeddingsAnswer, body=asked)
asked = TranscriptionRequest(model=transcriber, file=upload())
check("transcription", transcriptions, TranscriptionAnswer, body=asked)
asked = TranscriptionRequest(model=transcriber, file=upload(), response_format="verbose_json")
check("verbose transcription", transcriptions, VerboseTranscriptionAnswer, body=asked)
check("models", list_models, ModelList)
check("model", retrieve_model, ModelAnswer, model="ours")
check("no model", retrieve_model, ErrorAnswer, status=404, model="org/absent")
inventory = check("inventory", loaded, Inventory)
if not any(model.served_name == "ours" and model.pinned for model in inventory.models):
    differences["the inventory's models"] = inventory.to_dict()
entry = DeclaredEntry(model_id=chat_model, owner="ns/ours#1", pin=True)
check("declared", declared, DeclaredAnswer, body=DeclaredBody(models=[entry], hash_="1"))
check("synced", synced, Done, body=EmptyBody())
gone = check("unload", unload, UnloadAnswer, body=UnloadBody(model_id=chat_model))
if not gone.unloaded[0].was_loaded:
    differences["what was unloaded"] = gone.to_dict()
check("inventory after evictions", loaded, Inventory)
check("reset", reset, Done, body=EmptyBody())
print(json.dumps(differences))
