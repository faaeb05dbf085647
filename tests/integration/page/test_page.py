"""The page for people in a real browser against a real server."""

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.integration.page.conftest import ADMIN_TOKEN, USER_TOKEN, WAIT_SECONDS
from tests.support.eventually import eventually
from tests.support.hub import Hub
from tests.support.models import model_path
from tests.support.prefix_proxy import PrefixProxy
from tests.support.server import RunningServer

expect.set_options(timeout=WAIT_SECONDS * 1000)

LOADS_AND_UNLOADS = re.compile("^(Load|Unload|Cancel)$")


def enter(page: Page, address: str, token: str) -> None:
    """Open the page and give it a token."""
    page.goto(address)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Use token").click()


def row(page: Page, model: str):
    return page.get_by_role("row").filter(has_text=model)


def ask(page: Page, question: str) -> None:
    page.get_by_label("Message").fill(question)
    page.get_by_role("button", name="Send").click()


def test_the_page_asks_for_a_token_where_the_server_needs_one(page: Page, server: RunningServer) -> None:
    page.goto(server.base_url)
    expect(page.get_by_role("alert")).to_contain_text("asks for a token")
    enter(page, server.base_url, "made up")
    expect(page.get_by_text("wrong token")).to_be_visible()


def test_status_resources_and_models_are_shown(page: Page, server: RunningServer) -> None:
    enter(page, server.base_url, USER_TOKEN)
    expect(page.locator("#status")).to_have_text("ok")
    expect(page.locator("#facts")).to_contain_text("version")
    expect(row(page, "SmolLM2-135M-Instruct")).to_contain_text("loaded")
    memory = page.get_by_role("meter", name="Memory").first
    expect(memory).to_have_attribute("aria-valuenow", re.compile(r"\d"))
    expect(memory.locator(".limit")).to_have_attribute("style", re.compile("left: 97%"))


def test_load_and_unload_are_offered_to_the_admin_token_only(page: Page, server: RunningServer) -> None:
    enter(page, server.base_url, USER_TOKEN)
    expect(row(page, "SmolLM2-135M-Instruct")).to_contain_text("loaded")
    expect(page.get_by_role("button", name=LOADS_AND_UNLOADS)).to_have_count(0)

    enter(page, server.base_url, ADMIN_TOKEN)
    expect(page.get_by_text("administrator")).to_be_visible()
    expect(page.get_by_role("button", name=LOADS_AND_UNLOADS)).not_to_have_count(0)


def test_a_model_is_loaded_and_unloaded(page: Page, server: RunningServer) -> None:
    enter(page, server.base_url, ADMIN_TOKEN)
    tiny = model_path("tiny-random-llama")
    page.get_by_label("Model to load").fill(tiny)
    page.get_by_role("button", name="Load", exact=True).last.click()
    expect(row(page, tiny)).to_contain_text("MiB")
    row(page, tiny).get_by_role("button", name="Unload").click()
    expect(row(page, tiny).get_by_role("button", name="Unload")).to_have_count(0)
    assert tiny not in server.client.get("/v1/flexserv/models/loaded").text.partition('"unloading"')[0]


def test_a_download_shows_how_far_it_is_and_can_be_cancelled(
    page: Page, server: RunningServer, hub: Hub
) -> None:
    enter(page, server.base_url, ADMIN_TOKEN)
    page.get_by_label("Model to load").fill("org/large")
    page.get_by_role("button", name="Load", exact=True).last.click()
    expect(row(page, "org/large").get_by_role("progressbar")).to_be_visible()
    expect(row(page, "org/large")).to_contain_text(re.compile(r"download \d+ %"))
    row(page, "org/large").get_by_role("button", name="Cancel").click()
    expect(row(page, "org/large").get_by_role("progressbar")).to_have_count(0)
    hub.gate.set()


def test_a_load_that_fails_says_why(page: Page, server: RunningServer) -> None:
    enter(page, server.base_url, ADMIN_TOKEN)
    page.get_by_label("Model to load").fill("org/missing")
    page.get_by_role("button", name="Load", exact=True).last.click()
    expect(row(page, "org/missing")).to_contain_text("failed:")


def test_a_failed_load_is_tried_again_with_its_revision(page: Page, server: RunningServer) -> None:
    body = {"model_id": "org/absent", "revision": "v1", "wait": 30}
    assert server.client.post("/v1/flexserv/models/load", json=body).status_code == 404
    enter(page, server.base_url, ADMIN_TOKEN)
    again = row(page, "org/absent").get_by_role("button", name="Load")
    with page.expect_request("**/v1/flexserv/models/load") as asked:
        again.click()
    assert asked.value.post_data_json == {"model_id": "org/absent", "kind": "serve", "revision": "v1"}


def test_an_answer_appears_piece_by_piece(page: Page, server: RunningServer) -> None:
    enter(page, server.base_url, USER_TOKEN)
    expect(row(page, "SmolLM2-135M-Instruct")).to_contain_text("loaded")
    page.evaluate("""() => {
        window.lengths = new Set();
        new MutationObserver(() => {
            const shown = document.querySelector("#talk .assistant");
            if (shown) window.lengths.add(shown.textContent.length);
        }).observe(document.getElementById("talk"), { subtree: true, childList: true, characterData: true });
    }""")
    ask(page, "What is the capital of France?")
    expect(page.locator("#speed")).to_contain_text("per second")
    expect(page.locator("#talk .assistant")).to_contain_text("Paris")
    assert len(page.evaluate("[...window.lengths]")) > 2

    # The second question carries the first answer with it.
    ask(page, "And of Italy?")
    expect(page.locator("#talk .assistant")).to_have_count(2)
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#talk p")).to_have_count(0)


def test_stop_ends_the_answer_on_the_server_too(page: Page, server: RunningServer) -> None:
    enter(page, server.base_url, USER_TOKEN)
    expect(row(page, "SmolLM2-135M-Instruct")).to_contain_text("loaded")
    ask(page, "Count from one to one thousand, one number on each line. Do not stop before the end.")
    expect(page.locator("#talk .assistant")).not_to_be_empty()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    eventually(lambda: server.client.get("/v1/flexserv/health").json()["active_requests"] == 0, WAIT_SECONDS)


def test_a_name_from_outside_is_shown_as_text(page: Page, server: RunningServer) -> None:
    name = "<img src=x onerror=alert(1)>"
    declared = {"models": [{"model_id": "org/plain", "served_name": name, "kind": "serve"}], "hash": "x"}
    server.client.post("/v1/flexserv/declared", json=declared).raise_for_status()
    enter(page, server.base_url, USER_TOKEN)
    expect(row(page, name)).to_be_visible()
    assert page.locator("img").count() == 0
    server.client.post("/v1/flexserv/declared", json={"models": [], "hash": "y"}).raise_for_status()


def test_the_page_works_under_a_path_prefix_with_and_without_a_slash(
    page: Page, server: RunningServer, asked: list[str]
) -> None:
    with PrefixProxy(server.base_url) as proxy:
        for address in (proxy.url, proxy.url + "/"):
            enter(page, address, USER_TOKEN)
            expect(row(page, "SmolLM2-135M-Instruct")).to_contain_text("loaded")
            ask(page, "What is the capital of France?")
            expect(page.locator("#talk .assistant")).to_contain_text("Paris")
        assert [url for url in asked if not url.startswith((proxy.url, "data:"))] == []
        proxy.stop()
        expect(page.locator("#status")).to_have_text("unreachable")


def test_the_page_is_one_file_that_asks_nobody_else(
    page: Page, server: RunningServer, asked: list[str], tmp_path: Path
) -> None:
    enter(page, server.base_url, USER_TOKEN)
    expect(row(page, "SmolLM2-135M-Instruct")).to_contain_text("loaded")
    outside = [url for url in asked if not url.startswith((server.base_url, "data:"))]
    assert outside == []
    assert {url for url in asked if url.endswith((".js", ".css", ".png", ".woff2"))} == set()
