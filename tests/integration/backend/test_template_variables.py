"""Variables of the chat template on the real server: what reaches it, who wins, that nobody sees others'."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.images import picture_uri
from tests.support.model_copies import telltale_model
from tests.support.server import RunningServer

REVEAL = {"reveal": 1}
ROUTES = ["chat/completions", "responses"]
Seen = dict[str, Any]


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return telltale_model("tiny-random-llama", tmp_path_factory.mktemp("models") / "text")


@pytest.fixture(scope="module")
def vision_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return telltale_model("tiny-random-vision", tmp_path_factory.mktemp("models") / "vision")


@pytest.fixture(scope="module")
def configured(text_model: str) -> Iterator[RunningServer]:
    """A server with variables of its own."""
    server_wide = json.dumps({"style": "server", "tag": "server", "enable_thinking": True})
    with RunningServer(
        "--device", "cpu", "--reasoning", "off", env={"FLEXSERV_CHAT_TEMPLATE_KWARGS": server_wide}
    ) as running:
        yield running


def ask(
    server: RunningServer, route: str, model: str, *, picture: bool = False, **fields: Any
) -> httpx.Response:
    text_type, image_type = ("text", "image_url") if route == ROUTES[0] else ("input_text", "input_image")
    url: Any = picture_uri() if picture else None
    parts: list[dict[str, Any]] = [{"type": text_type, "text": "hi"}]
    if picture:
        parts.append({"type": image_type, "image_url": {"url": url} if route == ROUTES[0] else url})
    turns = [{"role": "user", "content": parts if picture else "hi"}]
    limit = {"max_completion_tokens": 2} if route == ROUTES[0] else {"max_output_tokens": 2}
    body = {"model": model, "messages" if route == ROUTES[0] else "input": turns, **limit, **fields}
    return server.client.post(f"/v1/{route}", json=body)


def seen(server: RunningServer, route: str, model: str, *, picture: bool = False, **fields: Any) -> Seen:
    """What the template was given, by its own account."""
    variables = {**(fields.pop("chat_template_kwargs", None) or {}), **REVEAL}
    answer = ask(server, route, model, picture=picture, chat_template_kwargs=variables, **fields)
    assert answer.status_code == 400, answer.text
    found = re.search(r"SEEN=(\{.*\})", answer.json()["error"]["message"])
    assert found is not None, answer.text
    values: Seen = json.loads(found[1])
    return values


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("kind", ["text", "vision"])
def test_variables_reach_the_template_verbatim_and_the_top_level_wins(
    server: RunningServer, text_model: str, vision_model: str, route: str, kind: str
) -> None:
    model, picture = (text_model, False) if kind == "text" else (vision_model, True)
    nested = {"levels": [1, 2.5, {"deep": "é"}]}
    cases: list[tuple[dict[str, Any], Seen]] = [
        ({}, {"tag": False, "style": False, "enable_thinking": "unset"}),
        ({"enable_thinking": False}, {"tag": False, "style": False, "enable_thinking": False}),
        (
            {"chat_template_kwargs": {"tag": nested, "style": "false", "enable_thinking": "no"}},
            {"tag": nested, "style": "false", "enable_thinking": "no"},
        ),
        (
            {"chat_template_kwargs": {"enable_thinking": False, "tag": "v"}, "enable_thinking": "true"},
            {"tag": "v", "style": False, "enable_thinking": True},
        ),
        (
            {"chat_template_kwargs": {"enable_thinking": True}, "enable_thinking": None},
            {"tag": False, "style": False, "enable_thinking": True},
        ),
        (
            {"chat_template_kwargs": {"tag": None, "no_such_variable": 5}},
            {"tag": False, "style": False, "enable_thinking": "unset"},
        ),
    ]
    for fields, expected in cases:
        assert seen(server, route, model, picture=picture, **fields) == expected
    nothing = {"chat_template_kwargs": None, "enable_thinking": None}
    assert ask(server, route, model, picture=picture, **nothing).status_code == 200
    # What transformers says of variables that a processor's template does not print.
    assert "processor_kwargs" not in server.log()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs.tokenize"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools"),
        ({"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": {"conversation": []}}, "chat_template_kwargs.conversation"),
        ({"chat_template_kwargs": {"processor_kwargs": {}}}, "chat_template_kwargs.processor_kwargs"),
        ({"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs.self"),
        ({"chat_template_kwargs": ["a"]}, "chat_template_kwargs"),
        ({"chat_template_kwargs": "{}"}, "chat_template_kwargs"),
        ({"enable_thinking": "maybe"}, "enable_thinking"),
        ({"enable_thinking": 1}, "enable_thinking"),
    ],
)
def test_what_belongs_to_the_machinery_is_refused_by_name(
    server: RunningServer, text_model: str, route: str, fields: dict[str, Any], param: str
) -> None:
    answer = ask(server, route, text_model, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_requests_at_the_same_time_never_see_each_others_variables(
    server: RunningServer, text_model: str, vision_model: str
) -> None:
    """Some tell, some generate, on both routes and two models at once, each with a variable of its own."""

    def one(number: int) -> bool:
        route = ROUTES[number % 2]
        model, picture = [(text_model, False), (vision_model, True), (vision_model, False)][number % 3]
        if number % 4 == 3:
            return ask(server, route, model, chat_template_kwargs={"tag": f"t{number}"}).status_code == 200
        variables: dict[str, Any] = {"tag": f"t{number}"} if number % 5 else {}
        thinking = [None, True, False][number % 3]
        got = seen(
            server,
            route,
            model,
            picture=picture,
            chat_template_kwargs=variables,
            enable_thinking=thinking,
        )
        return got == {
            "tag": variables.get("tag", False),
            "style": False,
            "enable_thinking": "unset" if thinking is None else thinking,
        }

    for model in (text_model, vision_model):
        ask(server, ROUTES[0], model).raise_for_status()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(120)))
    assert answers == [True] * 120


def test_what_a_model_was_loaded_with_is_its_default_and_the_request_wins(
    server: RunningServer, text_model: str
) -> None:
    def load(**settings: Any) -> None:
        body = {"model_id": text_model, "wait": 60, **settings}
        server.client.post("/v1/flexserv/models/load", json=body).raise_for_status()

    own = {"tag": "model", "enable_thinking": False}
    load(chat_template_kwargs=own)
    for route in ROUTES:
        assert seen(server, route, text_model) == {**own, "style": False}
        assert seen(server, route, text_model, enable_thinking=True)["enable_thinking"] is True
        assert seen(server, route, text_model, chat_template_kwargs={"tag": "r"})["tag"] == "r"
        assert seen(server, route, text_model, chat_template_kwargs={"tag": None})["tag"] == "model"
    load(pin=True)  # what a load does not name stays
    assert seen(server, ROUTES[0], text_model)["tag"] == "model"
    load(chat_template_kwargs=None)
    assert seen(server, ROUTES[0], text_model)["tag"] is False
    refused = server.client.post(
        "/v1/flexserv/models/load",
        json={"model_id": text_model, "chat_template_kwargs": {"tokenize": False}},
    )
    assert refused.status_code == 400
    assert "tokenize" in refused.json()["error"]["message"]


def test_the_servers_variables_yield_to_the_models_and_both_to_the_request(
    configured: RunningServer, text_model: str
) -> None:
    body = {"model_id": text_model, "wait": 60, "chat_template_kwargs": {"tag": "model"}}
    configured.client.post("/v1/flexserv/models/load", json=body).raise_for_status()
    for route in ROUTES:
        # --reasoning off is the server's last word on thinking, and the first of all.
        by_default = {"tag": "model", "style": "server", "enable_thinking": False}
        assert seen(configured, route, text_model) == by_default
        mine = {"chat_template_kwargs": {"style": "mine", "tag": "mine"}, "enable_thinking": True}
        assert seen(configured, route, text_model, **mine) == {
            "tag": "mine",
            "style": "mine",
            "enable_thinking": True,
        }


def test_reasoning_off_leaves_the_text_as_it_is(
    server: RunningServer, configured: RunningServer, text_model: str
) -> None:
    """The prompt opens a block of thinking, so all that a random model says is in it."""

    def message(running: RunningServer) -> dict[str, Any]:
        fields: dict[str, Any] = {"enable_thinking": True, "temperature": 0, "max_completion_tokens": 12}
        answer = ask(running, ROUTES[0], text_model, chat_template_kwargs={"tag": "x"}, **fields)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()["choices"][0]["message"]
        return found

    apart, as_it_is = message(server), message(configured)
    assert apart["content"] == "" and apart["reasoning_content"]
    assert "reasoning_content" not in as_it_is
    assert as_it_is["content"].strip() == apart["reasoning_content"].strip()
