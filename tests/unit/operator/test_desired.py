"""Several FlexServModels of one backend become one claim per model."""

import pytest
from flexserv_operator.desired import read_model
from flexserv_operator.inventory import Identity

from tests.support.operator_values import NOW, desired, model


def test_two_for_one_model_are_merged():
    old = model("old", age=5, model_id="org/m", pinned=False, priority=1, idle_timeout=60, load_timeout=100)
    new = model("new", model_id="org/m", pinned=False, priority=7, idle_timeout=600, load_timeout=50)
    (claim,) = desired(new, old).claims
    assert (claim.owner, claim.priority, claim.idle_timeout, claim.load_timeout) == (old.owner, 7, 600, 100)
    assert claim.claimants == ("uid-old", "uid-new")


def test_pinned_wins_over_on_demand():
    (claim,) = desired(
        model("a", model_id="org/m", pinned=False, idle_timeout=60), model("b", model_id="org/m")
    ).claims
    assert claim.pinned and claim.idle_timeout is None


@pytest.mark.parametrize(
    ("one", "other", "longer"), [(60, 600, 600), (0, 600, 0), (None, 60, 60), (None, None, None)]
)
def test_the_longer_idle_timeout_wins_and_0_is_for_ever(one, other, longer):
    models = [
        model("a", model_id="org/m", pinned=False, idle_timeout=one),
        model("b", model_id="org/m", pinned=False, idle_timeout=other),
    ]
    assert desired(*models).claims[0].idle_timeout == longer


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ({"load_settings": {"dtype": "float16"}}, {"load_settings": {"dtype": "float32"}}, "dtype"),
        ({}, {"load_settings": {"quantization": "bnb-4bit"}}, "quantization"),
        ({}, {"load_settings": {"quantization": "none"}}, "quantization"),
        ({"served_name": "x"}, {"served_name": "y"}, "served name"),
        ({"chat_template_kwargs": {"a": 1}}, {"chat_template_kwargs": {"a": 2}}, "chat template"),
    ],
)
def test_what_one_copy_in_memory_cannot_be_twice_puts_the_younger_in_conflict(old, new, word):
    wanted = desired(model("new", model_id="org/m", **new), model("old", age=3, model_id="org/m", **old))
    assert [claim.owner for claim in wanted.claims] == [model("old").owner]
    assert list(wanted.conflicts) == ["uid-new"]
    assert word in wanted.conflicts["uid-new"] and "team/old" in wanted.conflicts["uid-new"]


def test_the_younger_takes_no_offense_where_it_asks_for_nothing_special():
    wanted = desired(
        model("old", age=3, model_id="org/m", served_name="x", load_settings={"dtype": "float16"}),
        model("new", model_id="org/m"),
    )
    assert not wanted.conflicts


def test_one_served_name_means_one_model():
    wanted = desired(model("old", age=3, served_name="chat"), model("new", served_name="chat"))
    assert list(wanted.conflicts) == ["uid-new"]
    assert "choose another name" in wanted.conflicts["uid-new"]


def test_a_served_name_cannot_be_another_models_id():
    assert list(desired(model("old", age=3), model("new", served_name="org/old")).conflicts) == ["uid-new"]
    assert list(desired(model("new", served_name="org/old", age=3), model("old")).conflicts) == ["uid-old"]


def test_two_revisions_live_side_by_side_if_clients_can_tell_them_apart():
    v1 = model("v1", age=3, model_id="org/m", revision="v1")
    assert not desired(v1, model("v2", model_id="org/m", revision="v2")).conflicts
    assert not desired(v1, model("plain", model_id="org/m", served_name="m-main")).conflicts
    assert list(desired(v1, model("plain", model_id="org/m")).conflicts) == ["uid-plain"]


def test_one_id_can_be_served_and_embedded():
    assert not desired(model("a", model_id="org/m"), model("b", model_id="org/m", kind="embedding")).conflicts


def test_a_model_in_conflict_is_still_claimed_so_that_nobody_unloads_it():
    wanted = desired(model("old", age=3, served_name="x"), model("new", served_name="x"))
    assert Identity("serve", "org/new", None) in wanted.claimed


def test_the_conflict_ends_with_the_older_one():
    new = model("new", served_name="chat")
    assert desired(model("old", age=3, served_name="chat"), new).conflicts
    assert not desired(new).conflicts


def test_the_declared_list_is_in_order_of_age_and_its_hash_depends_on_content_only():
    a, b = model("a", age=1), model("b", age=2)
    first, second = desired(a, b).declaration(NOW), desired(b, a).declaration(NOW + 99)
    assert first == second
    assert [entry["model_id"] for entry in first["models"]] == ["org/b", "org/a"]
    assert desired(a, model("b", age=2, priority=1)).declaration(NOW)["hash"] != first["hash"]


def test_a_request_carries_every_setting_and_null_for_what_goes_back_to_the_backends_default():
    (claim,) = desired(model("a", load_settings={"dtype": "float16"})).claims
    assert claim.request() == {
        "model_id": "org/a",
        "kind": "serve",
        "revision": None,
        "owner": "team/a#uid-a",
        "served_name": None,
        "pin": True,
        "priority": 0,
        "idle_timeout_seconds": None,
        "chat_template_kwargs": {},
        "dtype": "float16",
        "quantization": None,
        "attn_implementation": None,
        "trust_remote_code": None,
    }


def test_reading_a_flexservmodel():
    spec = {
        "model": "org/m",
        "revision": "v1",
        "kind": "Embedding",
        "servedName": "m",
        "residency": "OnDemand",
        "priority": 3,
        "idleTimeoutSeconds": 60,
        "loadTimeoutSeconds": 90,
        "dtype": "float16",
        "quantization": "none",
        "attnImplementation": "sdpa",
        "trustRemoteCode": True,
        "backendRef": {"name": "other"},
    }
    meta = {
        "namespace": "team",
        "name": "m",
        "uid": "u",
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    read = read_model({"metadata": meta, "spec": spec})
    assert read.identity == Identity("embedding", "org/m", "v1")
    assert (read.pinned, read.priority, read.idle_timeout, read.load_timeout) == (False, 3, 60, 90)
    assert (read.backend, read.served_name, read.owner) == ("other", "m", "team/m#u")
    assert read.load_settings == {
        "dtype": "float16",
        "quantization": "none",
        "attn_implementation": "sdpa",
        "trust_remote_code": True,
    }
