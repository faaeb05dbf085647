"""Checks a running release from inside the cluster; the pods of `helm test` run it.

    release_test.py health    the backend is ready, and can be scraped
    release_test.py model     a model is loaded, answers a chat, and leaves again if it was not there before

Where it is comes from the variables BACKEND_HOST and BACKEND_PORT; tokens are files in TOKEN_FOLDER.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

LOADED = "/v1/flexserv/models/loaded"


def main(check: str) -> None:
    {"health": check_health, "model": check_model}[check]()


def check_health() -> None:
    get("/health")
    health = json.loads(get("/v1/flexserv/health"))
    if health["status"] != "ok":
        raise SystemExit(f"the backend is not ready: {health}")
    say(f"{address()} is ready on {health['device']}")
    if "\nflexserv_ready 1" not in get("/metrics"):
        raise SystemExit("/metrics answers, but does not say flexserv_ready 1")
    say("/metrics can be scraped")


def check_model() -> None:
    model = os.environ.get("TEST_MODEL") or first_resident()
    if model is None:
        say("no model is resident and tests.model names none: nothing was loaded, nothing was asked")
        return
    seconds = int(os.environ["LOAD_TIMEOUT"])
    loaded = post(
        "/v1/flexserv/models/load", {"model_id": model, "wait": seconds}, "admin-token", seconds + 30
    )
    if loaded["status"] not in ("loaded", "already_loaded"):
        raise SystemExit(f"{model} was not loaded within {seconds} s: {loaded}")
    say(f"{model} is {loaded['status'].replace('_', ' ')}")
    try:
        question = {"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": "Say hello."}]}
        answer = post("/v1/chat/completions", question, "token", 300)
        if not answer["usage"]["completion_tokens"] > 0:
            raise SystemExit(f"{model} gave no tokens: {answer}")
        say(f"{model} answered with {answer['usage']['completion_tokens']} tokens")
    finally:
        if loaded["status"] == "loaded":
            post("/v1/flexserv/models/unload", {"model_id": model}, "admin-token", 60)


def first_resident() -> str | None:
    """The first model in memory that generates."""
    models = json.loads(get(LOADED, "token"))["models"]
    return next((one["served_name"] or one["model_id"] for one in models if one["kind"] == "serve"), None)


def address() -> str:
    host = os.environ["BACKEND_HOST"]
    return f"http://{f'[{host}]' if ':' in host else host}:{os.environ['BACKEND_PORT']}"


def get(path: str, token: str = "") -> str:
    return ask(urllib.request.Request(address() + path, headers=authorization(token)), 30)


def post(path: str, body: dict[str, object], token: str, seconds: float) -> dict[str, object]:
    headers = {"Content-Type": "application/json", **authorization(token)}
    return json.loads(
        ask(urllib.request.Request(address() + path, json.dumps(body).encode(), headers), seconds)
    )


def ask(request: urllib.request.Request, seconds: float) -> str:
    try:
        with urllib.request.urlopen(request, timeout=seconds) as reply:
            return reply.read().decode()
    except urllib.error.HTTPError as error:
        raise SystemExit(
            f"{request.full_url}: {error.code} {error.read().decode(errors='replace')}"
        ) from None
    except OSError as error:
        raise SystemExit(f"{request.full_url}: {error}") from None


def authorization(token: str) -> dict[str, str]:
    """The wanted token where there is one, else the other one: an admin token is good for everything."""
    folder = Path(os.environ.get("TOKEN_FOLDER", "/nowhere"))
    for name in dict.fromkeys((token, "admin-token", "token")):
        if token and (folder / name).is_file():
            return {"Authorization": f"Bearer {(folder / name).read_text().strip()}"}
    return {}


def say(text: str) -> None:
    print(f"ok: {text}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
