"""Images over HTTP on the real server, which in these tests may fetch from this machine."""

import socket
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.support.images import picture_uri
from tests.support.models import model_path
from tests.support.picture_server import PictureServer, picture_server
from tests.support.server import RunningServer


@pytest.fixture
def server(odd_server: RunningServer) -> RunningServer:
    return odd_server


@pytest.fixture
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0, timeout=90) as made:
        yield made


@pytest.fixture(scope="module")
def pictures() -> Iterator[PictureServer]:
    with picture_server() as running:
        yield running


@pytest.fixture(scope="module")
def vision() -> str:
    return model_path("tiny-random-vision")


def question(address: str) -> list[Any]:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": address}}]
    return [{"role": "user", "content": parts}]


def seen(client: OpenAI, vision: str, address: str) -> str:
    got = client.chat.completions.create(
        model=vision, messages=question(address), max_tokens=12, temperature=0
    )
    return got.choices[0].message.content or ""


def test_a_fetched_image_is_seen_like_the_same_image_in_the_request(
    client: OpenAI, vision: str, pictures: PictureServer
) -> None:
    address = f"http://127.0.0.1:{pictures.port}"
    pictures.redirect("/moved", "/red.png")
    inside = seen(client, vision, picture_uri("red"))
    assert seen(client, vision, f"{address}/red.png") == inside
    assert seen(client, vision, f"{address}/moved") == inside
    assert seen(client, vision, f"{address}/blue.jpg") != inside
    part = {"type": "input_image", "image_url": f"{address}/red.png"}
    text = {"type": "input_text", "text": "What is it?"}
    response = client.responses.create(
        model=vision,
        input=[{"role": "user", "content": [text, part]}],  # type: ignore[list-item, misc]
        max_output_tokens=12,
        temperature=0,
    )
    assert response.output_text == inside


@pytest.mark.parametrize("path", ["broken.png", "page", "missing.png", "nothing-here"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_no_image_is_a_400_that_names_its_place(
    client: OpenAI, vision: str, pictures: PictureServer, path: str, stream: bool
) -> None:
    messages = question(f"http://127.0.0.1:{pictures.port}/{path}")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=vision, messages=messages, stream=stream)
    assert caught.value.param == "messages[0].content[1].image_url"


def test_a_slow_host_holds_up_nobody_and_is_left_when_the_client_leaves(
    server: RunningServer, client: OpenAI, vision: str, pictures: PictureServer
) -> None:
    inside = seen(client, vision, picture_uri("red"))
    pictures.hanging.clear()
    pictures.gone.clear()
    body = {"model": vision, "messages": question(f"http://127.0.0.1:{pictures.port}/hang")}
    request = server.client.build_request("POST", "/v1/chat/completions", json=body)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    host, port = server.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + request.read())
        assert pictures.hanging.wait(30)
        assert server.client.get("/health", timeout=20).status_code == 200
        assert seen(client, vision, picture_uri("red")) == inside
        assert not pictures.gone.is_set()
    assert pictures.gone.wait(30)


@pytest.mark.parametrize("text", ["<image><image> SECRET", "one <image> more"])
@pytest.mark.parametrize("pictured", [False, True])
def test_a_text_that_stands_for_an_image_is_a_400_that_names_its_place(
    server: RunningServer, vision: str, text: str, pictured: bool
) -> None:
    (message,) = question(picture_uri("red"))
    message["content"] = [{"type": "text", "text": text}, *message["content"][1:]] if pictured else text
    hello = {"role": "system", "content": "You see."}
    got = server.client.post(
        "/v1/chat/completions", json={"model": vision, "messages": [hello, message], "max_tokens": 1}
    )
    assert (got.status_code, got.json()["error"]["param"]) == (400, "messages[1].content")
    got = server.client.post(
        "/v1/responses",
        json={"model": vision, "input": f"{text}", "instructions": "x", "max_output_tokens": 1},
    )
    assert (got.status_code, got.json()["error"]["param"]) == (400, "input")
    tool = {"type": "function", "function": {"name": "look", "description": text}}
    got = server.client.post(
        "/v1/chat/completions", json={"model": vision, "messages": [hello], "tools": [tool], "max_tokens": 1}
    )
    assert got.status_code < 500, got.text
    assert "SECRET" not in server.log()


def test_a_text_model_fetches_nothing(client: OpenAI, pictures: PictureServer) -> None:
    pictures.seen.clear()
    messages = question(f"http://127.0.0.1:{pictures.port}/red.png")
    with pytest.raises(openai.BadRequestError, match="text only"):
        client.chat.completions.create(model=model_path("tiny-random-llama"), messages=messages)
    assert pictures.seen == []
