"""What names mean, and which models a mere request may load."""

from typing import Any

import pytest
from hf_transformers_backend.errors import BadRequest, FlexServError
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.residency.declared import DeclaredList, DeclaredModel
from hf_transformers_backend.residency.directory import Directory
from hf_transformers_backend.residency.names import parse_name
from hf_transformers_backend.settings import load_settings

NOW = 1000.0
CHAT = ModelIdentity("org/chat")
CHAT_V2 = ModelIdentity("org/chat", revision="v2")
ENCODER = ModelIdentity("/models/enc", "embedding")


def directory(*declared: DeclaredModel, digest: str | None = "h", **settings: Any) -> Directory:
    made = Directory(load_settings(**settings), lambda: NOW)
    made.declared = DeclaredList(declared, digest)
    return made


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org/chat", ModelIdentity("org/chat")),
        ("org/chat@v2", ModelIdentity("org/chat", revision="v2")),
        ("gpt2", ModelIdentity("gpt2")),
        ("/models/a@b", ModelIdentity("/models/a@b")),
        ("/models/a/", ModelIdentity("/models/a")),
        ("/models/./a", ModelIdentity("/models/a")),
        ("//models//a/.", ModelIdentity("/models/a")),
        ("/models/.hidden/a..b", ModelIdentity("/models/.hidden/a..b")),
        ("org/repo:q4.gguf", ModelIdentity("org/repo:q4.gguf")),
    ],
)
def test_a_name_is_an_id_with_or_without_a_revision(name: str, expected: ModelIdentity) -> None:
    assert parse_name(name, "serve") == expected


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "characters"),
        (" a", "characters"),
        ("a\nb", "characters"),
        ("a" * 513, "characters"),
        ("https://hub/x", "URL"),
        ("../x", "relative path"),
        ("/models/../etc", "relative path"),
        ("./x", "relative path"),
        ("~/x", "relative path"),
        ("org/chat@", "revision"),
        ("@main", "no model before"),
        ("@", "no model before"),
    ],
)
def test_what_can_be_no_model_is_refused_by_name(name: str, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint) as caught:
        parse_name(name, "serve")
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("name", "kind", "declared", "live", "expected"),
    [
        ("org/chat", "serve", [], [], CHAT),
        ("org/chat", "serve", [DeclaredModel(CHAT_V2)], [], CHAT_V2),
        ("org/chat", "serve", [DeclaredModel(CHAT_V2), DeclaredModel(CHAT)], [], CHAT),
        ("org/chat@v2", "serve", [DeclaredModel(CHAT)], [], CHAT_V2),
        ("bot", "serve", [DeclaredModel(CHAT, {"served_name": "bot"})], [], CHAT),
        ("bot", "serve", [], [(CHAT, "bot")], CHAT),
        (
            "bot",
            "serve",
            [DeclaredModel(CHAT_V2, {"served_name": "bot"}), DeclaredModel(CHAT, {"served_name": "bot"})],
            [(CHAT, "bot")],
            CHAT_V2,
        ),
        ("enc", "embedding", [DeclaredModel(ENCODER, {"served_name": "enc"})], [], ENCODER),
        (None, "serve", [], [], ModelIdentity("org/default", revision="r1")),
        ("org/default", "serve", [], [], ModelIdentity("org/default", revision="r1")),
    ],
)
def test_a_name_means_one_model(
    name: str | None,
    kind: Kind,
    declared: list[DeclaredModel],
    live: list[tuple[ModelIdentity, str | None]],
    expected: ModelIdentity,
) -> None:
    assert directory(*declared, default_model="org/default@r1").resolve(name, kind, live) == expected


def test_a_served_name_of_the_other_kind_says_where_to_go() -> None:
    with pytest.raises(BadRequest, match="/v1/embeddings"):
        directory(DeclaredModel(ENCODER, {"served_name": "enc"})).resolve("enc", "serve", [])


def test_no_name_and_no_default_names_the_flag() -> None:
    with pytest.raises(BadRequest, match="--default-embedding-model"):
        directory(default_model="org/chat").resolve(None, "embedding", [])


@pytest.mark.parametrize(
    ("policy", "declared", "digest", "code"),
    [
        ("any", [], None, None),
        ("any", [DeclaredModel(CHAT, blocked_until=NOW + 60)], "h", "model_quarantined"),
        ("any", [DeclaredModel(CHAT, blocked_until=NOW - 1)], "h", None),
        ("declared", [], None, "not_synced"),
        ("declared", [], "h", "not_declared"),
        ("declared", [DeclaredModel(CHAT_V2)], "h", "not_declared"),
        ("declared", [DeclaredModel(CHAT)], "h", None),
        ("off", [DeclaredModel(CHAT)], "h", "not_declared"),
    ],
)
def test_the_policy_decides_what_a_request_may_load(
    policy: str, declared: list[DeclaredModel], digest: str | None, code: str | None
) -> None:
    made = directory(*declared, digest=digest, on_demand=policy)
    if code is None:
        made.check_on_demand(CHAT, "org/chat")
        return
    with pytest.raises(FlexServError) as caught:
        made.check_on_demand(CHAT, "org/chat")
    assert caught.value.code == code
    assert "'org/chat'" in caught.value.message


def test_a_default_model_counts_as_declared_before_the_first_list() -> None:
    directory(digest=None, on_demand="declared", default_model="org/chat").check_on_demand(CHAT, "org/chat")


@pytest.mark.parametrize(
    ("name", "kind", "revisions", "matched"),
    [
        (None, None, None, {"serve", "v2", "embedding"}),
        ("org/chat", None, None, {"serve", "v2"}),
        ("org/chat@v2", None, None, {"v2"}),
        ("org/chat", None, {"v2"}, {"v2"}),
        ("org/chat", None, {None}, {"serve"}),
        ("bot", None, None, {"serve"}),
        ("/models/enc", None, None, {"embedding"}),
        ("/models/enc", "serve", None, set()),
        (None, "embedding", None, {"embedding"}),
        ("org/other", None, None, set()),
    ],
)
def test_an_unload_means_all_that_bear_the_name(
    name: str | None, kind: Kind | None, revisions: set[str | None] | None, matched: set[str]
) -> None:
    here = {"serve": CHAT, "v2": CHAT_V2, "embedding": ENCODER}
    live = [(CHAT, "bot"), (CHAT_V2, None), (ENCODER, None)]
    made = directory()
    found = {key for key, model in here.items() if made.matches(model, name, kind, revisions, live)}
    assert found == matched
