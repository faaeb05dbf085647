"""What the operator does on one pod, row by row of the residency table."""

from dataclasses import replace

import pytest
from flexserv_operator.decide import rejected, standing
from flexserv_operator.plans import Memory, Refusal
from flexserv_operator.quarantine import NONE, Crash, Quarantine

from tests.support.operator_values import (
    NOW,
    decide,
    desired,
    evicted,
    failed,
    inventory,
    loading,
    model,
    owner,
    resident,
    spoken,
)

PINNED = desired(model("a"))
ON_DEMAND = desired(model("a", pinned=False))


def state(plan, name="a"):
    """State and reason of the model on the pod."""
    replica = next(
        replica for identity, replica in plan.replicas.items() if identity.model_id == f"org/{name}"
    )
    return f"{replica.state} {replica.reason}"


@pytest.mark.parametrize(
    ("wanted", "seen", "actions", "becomes"),
    [
        pytest.param(PINNED, inventory(), ["load org/a"], "Loading Loading", id="pinned, not there: loaded"),
        pytest.param(
            ON_DEMAND, inventory(), [], "Standby Standby", id="on demand, not there: waits for a request"
        ),
        pytest.param(
            PINNED, inventory(resident("a")), [], "Loaded Loaded", id="pinned, there: nothing to do"
        ),
        pytest.param(
            ON_DEMAND, inventory(resident("a")), [], "Loaded Loaded", id="on demand, there: nothing to do"
        ),
        pytest.param(
            PINNED, inventory(loading=[loading("a")]), [], "Loading Loading", id="pinned, loading: waited for"
        ),
        pytest.param(
            PINNED,
            inventory(last_evictions=[evicted("a", "manual")]),
            ["load org/a"],
            "Loading Loading",
            id="pinned, unloaded by hand: loaded again",
        ),
        pytest.param(
            ON_DEMAND,
            inventory(last_evictions=[evicted("a", "manual")]),
            [],
            "Standby Standby",
            id="on demand, unloaded by hand: stays away",
        ),
        pytest.param(
            ON_DEMAND,
            inventory(last_evictions=[evicted("a", "idle")]),
            [],
            "Standby Standby",
            id="on demand, idle: stays away",
        ),
        pytest.param(
            ON_DEMAND,
            inventory(last_evictions=[evicted("a", "memory")]),
            [],
            "Standby Standby",
            id="on demand, memory pressure: stays away",
        ),
        pytest.param(
            ON_DEMAND,
            inventory(last_evictions=[evicted("a", "room")]),
            [],
            "Standby Standby",
            id="on demand, made room for another: stays away",
        ),
        pytest.param(
            PINNED,
            inventory(last_evictions=[evicted("a", "idle")]),
            ["load org/a"],
            "Loading Loading",
            id="pinned since it was idle: loaded again",
        ),
        pytest.param(
            PINNED,
            inventory(last_evictions=[evicted("a", "room")]),
            ["load org/a"],
            "Loading Loading",
            id="pinned since it made room: loaded again",
        ),
        pytest.param(
            PINNED,
            inventory(last_evictions=[evicted("a", "memory", ago=10)]),
            [],
            "Evicted EvictedMemory",
            id="pinned, memory pressure: cools down",
        ),
        pytest.param(
            PINNED,
            inventory(last_evictions=[evicted("a", "memory", ago=61)]),
            ["load org/a"],
            "Loading Loading",
            id="pinned, cooled down: loaded again",
        ),
        pytest.param(
            PINNED,
            inventory(last_evictions=[evicted("a", "memory", ago=61, count=2)]),
            [],
            "Evicted EvictedMemory",
            id="pinned, evicted twice: cools down for longer",
        ),
        pytest.param(
            PINNED,
            inventory(last_evictions=[evicted("a", "memory", ago=61)], pressure={"refuses_work": False}),
            [],
            "Evicted EvictedMemory",
            id="pinned, cooled down but still under pressure: waits",
        ),
        pytest.param(
            PINNED,
            inventory(pressure={"refuses_work": True}),
            [],
            "Pending Queued",
            id="pinned, pod refuses work: not asked",
        ),
        pytest.param(
            ON_DEMAND,
            inventory(failed=[failed("a", "model_gated")]),
            [],
            "Failed ModelGated",
            id="on demand, the last request's load failed: shown",
        ),
        pytest.param(
            ON_DEMAND,
            inventory(failed=[failed("a", "insufficient_memory")]),
            [],
            "Standby Standby",
            id="on demand, did not fit: the client was told",
        ),
        pytest.param(
            PINNED,
            inventory(declared_hash="another"),
            ["declare", "load org/a"],
            "Loading Loading",
            id="new list: declared before anything else",
        ),
        pytest.param(
            PINNED,
            inventory(failed=[failed("a", "model_unloaded")]),
            ["load org/a"],
            "Loading Loading",
            id="a load that somebody aborted is no failure",
        ),
    ],
)
def test_the_residency_table(wanted, seen, actions, becomes):
    plan = decide(wanted, seen)
    assert (spoken(plan.actions), state(plan)) == (actions, becomes)


def test_one_load_at_a_time_by_priority_then_age():
    wanted = desired(model("young"), model("old", age=3), model("vip", priority=5))
    assert spoken(decide(wanted, inventory()).actions) == ["load org/vip"]
    assert spoken(decide(wanted, inventory(resident("vip"))).actions) == ["load org/old"]
    assert spoken(decide(wanted, inventory(resident("vip"), loading=[loading("old")])).actions) == []


def test_a_load_that_a_request_started_does_not_hold_up_the_pinned_ones():
    wanted = desired(model("a"), model("b", pinned=False))
    assert spoken(decide(wanted, inventory(loading=[loading("b", "download")])).actions) == ["load org/a"]


# Failures


@pytest.mark.parametrize(
    ("code", "reason", "shortest", "longest"),
    [
        ("model_not_found", "ModelNotFound", 240, 360),
        ("model_gated", "ModelGated", 240, 360),
        ("unsupported_model", "UnsupportedModel", 240, 360),
        ("insufficient_storage", "InsufficientStorage", 48, 72),
        ("insufficient_memory", "InsufficientMemory", 48, 72),
        ("hub_unavailable", "HubUnavailable", 4, 6),
        ("load_failed", "LoadFailed", 4, 6),
        ("something_new", "LoadFailed", 4, 6),
    ],
)
def test_a_failed_load_is_tried_again_after_a_wait_of_its_class(code, reason, shortest, longest):
    seen = inventory(failed=[failed("a", code)])
    plan = decide(PINNED, seen)
    assert (spoken(plan.actions), state(plan)) == ([], f"Failed {reason}")
    assert spoken(decide(PINNED, seen, plan.memory, NOW + shortest - 0.1).actions) == []
    assert spoken(decide(PINNED, seen, plan.memory, NOW + longest + 0.1).actions) == ["load org/a"]


def test_waits_grow_with_every_failure_up_to_a_limit():
    waits, memory, now = [], Memory(), NOW
    for number in range(12):
        memory = decide(
            PINNED, inventory(failed=[failed("a", "load_failed", f"load-{number}")]), memory, now
        ).memory
        waits.append(memory.attempts[PINNED.claims[0].identity].retry_at - now)
    assert waits[0] < 6 and waits[3] > 30
    assert 240 <= waits[-1] <= 360


def test_one_failure_counts_once_however_often_it_is_seen():
    seen = inventory(failed=[failed("a", "load_failed")])
    first = decide(PINNED, seen).memory
    assert decide(PINNED, seen, first, NOW + 3).memory.attempts == first.attempts


def test_a_refusal_and_its_echo_in_the_inventory_count_once():
    claim = PINNED.claims[0]
    memory = rejected(Memory(instance="i-1"), claim, "insufficient_memory", "too big", NOW)
    seen = inventory(failed=[failed("a", "insufficient_memory", "load-9")])
    assert decide(PINNED, seen, memory).memory.attempts[claim.identity].failures == 1


def test_a_draining_pod_is_no_failure():
    assert rejected(Memory(), PINNED.claims[0], "draining", "", NOW) == Memory()


def test_an_edit_is_a_reason_to_try_at_once():
    seen = inventory(failed=[failed("a", "model_gated")])
    memory = decide(PINNED, seen).memory
    edited = desired(model("a", generation=2))
    assert spoken(decide(edited, seen, memory, NOW + 1).actions) == ["load org/a"]


def test_a_new_container_is_a_reason_to_try_at_once():
    memory = decide(PINNED, inventory(failed=[failed("a", "model_gated")])).memory
    assert spoken(decide(PINNED, inventory(instance_id="i-2"), memory, NOW + 1).actions) == ["load org/a"]


def test_success_forgets_the_failures():
    memory = decide(PINNED, inventory(failed=[failed("a", "load_failed")])).memory
    assert not decide(PINNED, inventory(resident("a")), memory).memory.attempts


def test_one_failed_model_does_not_hold_up_the_others():
    wanted = desired(model("a", priority=9), model("b"))
    assert spoken(decide(wanted, inventory(failed=[failed("a", "model_not_found")])).actions) == [
        "load org/b"
    ]


@pytest.mark.parametrize(
    ("load", "actions"),
    [
        (loading("a", since=1799), []),
        (loading("a", since=1801), ["unload org/a (timeout)"]),
        (loading("a", stage="queued", since=9999), []),
        (loading("a", stage="download", started_at=None), []),
    ],
    ids=["in time", "too long", "waiting in the queue", "start unknown"],
)
def test_a_load_is_aborted_when_it_takes_longer_than_it_may(load, actions):
    plan = decide(PINNED, inventory(loading=[load]))
    assert spoken(plan.actions) == actions
    if actions:
        assert state(plan) == "Failed LoadTimeout"
        assert spoken(decide(PINNED, inventory(), plan.memory, NOW + 1).actions) == []


# Room


def over_commit(needed=100, available=20, **low):
    """`vip` did not fit beside what is there."""
    failure = failed("vip", "insufficient_memory", needed_bytes=needed, available_bytes=available)
    return inventory(resident("low", **low), resident("mid"), failed=[failure])


ROOM = desired(model("vip", priority=9), model("mid", priority=5), model("low", priority=1))


def test_a_pinned_model_displaces_pinned_ones_of_lower_priority_lowest_first():
    plan = decide(ROOM, over_commit())
    assert spoken(plan.actions) == ["unload org/low (room)", "load org/vip"]
    assert state(plan, "low") == "Evicted Displaced"


def test_it_displaces_as_many_as_it_takes():
    plan = decide(ROOM, over_commit(needed=200, available=20, bytes=90))
    assert spoken(plan.actions) == ["unload org/low (room)", "unload org/mid (room)", "load org/vip"]


def test_nothing_is_displaced_when_that_would_not_be_enough():
    plan = decide(ROOM, over_commit(needed=500))
    assert spoken(plan.actions) == []
    assert state(plan, "vip") == "Failed InsufficientMemory"


def test_nothing_is_displaced_by_guesswork():
    seen = inventory(resident("low"), failed=[failed("vip", "insufficient_memory")])
    assert spoken(decide(ROOM, seen).actions)[0] != "unload org/low (room)"


def test_equal_priority_displaces_nobody():
    wanted = desired(model("vip", priority=1), model("low", priority=1))
    seen = inventory(
        resident("low"), failed=[failed("vip", "insufficient_memory", needed_bytes=100, available_bytes=20)]
    )
    assert spoken(decide(wanted, seen).actions) == []


def test_on_demand_models_are_left_to_the_backend():
    wanted = desired(model("vip", priority=9), model("low", priority=1, pinned=False))
    seen = inventory(
        resident("low"), failed=[failed("vip", "insufficient_memory", needed_bytes=100, available_bytes=20)]
    )
    assert spoken(decide(wanted, seen).actions) == []


def test_the_displaced_model_says_so_until_it_is_back():
    memory = decide(ROOM, over_commit()).memory
    later = inventory(
        resident("vip"), resident("mid"), failed=[failed("low", "insufficient_memory", "load-5")]
    )
    plan = decide(ROOM, later, memory, NOW + 100)
    assert (spoken(plan.actions), state(plan, "low")) == ([], "Evicted Displaced")


# Garbage, revisions, settings


@pytest.mark.parametrize(
    ("held", "actions"),
    [
        (resident("gone"), ["unload org/gone (unclaimed)"]),
        (resident("gone", owner=owner("a", uid="former")), ["unload org/gone (unclaimed)"]),
        (resident("gone", owner=None), []),
        (resident("gone", owner="somebody"), []),
        (resident("gone", owner=owner("gone", namespace="other-team")), []),
        (resident("gone", owner=owner("theirs")), []),
        (resident("gone", default=True), ["disown org/gone"]),
    ],
    ids=[
        "its FlexServModel is gone",
        "its FlexServModel was made anew for another model",
        "nobody's: a request loaded it",
        "the tag is no tag of ours",
        "another namespace's",
        "another operator's",
        "a default model stays",
    ],
)
def test_garbage_is_what_is_ours_and_unclaimed(held, actions):
    wanted = desired(model("a"), foreign=("uid-theirs",))
    assert spoken(decide(wanted, inventory(resident("a"), held)).actions) == actions


def test_a_load_whose_flexservmodel_is_gone_is_aborted():
    assert spoken(decide(desired(), inventory(loading=[loading("gone")])).actions) == [
        "unload org/gone (unclaimed)"
    ]


def test_a_model_that_another_flexservmodel_claims_is_no_garbage():
    wanted = desired(model("other", model_id="org/a"))
    assert spoken(decide(wanted, inventory(resident("a", owner=owner("gone")))).actions) == []


def test_the_declared_list_goes_out_before_the_unload():
    plan = decide(desired(), inventory(resident("gone"), declared_hash="former"))
    assert spoken(plan.actions) == ["declare", "unload org/gone (unclaimed)"]


@pytest.mark.parametrize(
    ("seen", "leaves"),
    [
        (inventory(), []),
        (inventory(loading=[loading("gone", "queued")]), ["unload org/gone (unclaimed)"]),
        (inventory(loading=[loading("gone", "download")]), ["unload org/gone (unclaimed)"]),
        (inventory(loading=[loading("gone")]), ["unload org/gone (unclaimed)"]),
        (inventory(resident("gone")), ["unload org/gone (unclaimed)"]),
        (inventory(resident("gone", active_requests=3)), ["unload org/gone (unclaimed)"]),
        (inventory(failed=[failed("gone", "load_failed")]), []),
        (inventory(last_evictions=[evicted("gone", "memory")]), []),
        (inventory(crashed_loading=[{"model_id": "org/gone", "kind": "serve"}]), []),
        (inventory(resident("gone"), pressure={"refuses_work": True}), ["unload org/gone (unclaimed)"]),
        (inventory(resident("gone", default=True)), ["disown org/gone"]),
    ],
    ids=[
        "pending",
        "queued",
        "fetching",
        "loading",
        "loaded",
        "in use",
        "failed",
        "evicted",
        "crashed",
        "under pressure",
        "default",
    ],
)
def test_a_deleted_model_leaves_from_whatever_it_was_doing(seen, leaves):
    before = decide(desired(model("gone"), model("a")), seen).memory
    plan = decide(desired(model("a")), seen, before)
    assert [word for word in spoken(plan.actions) if "gone" in word] == leaves
    assert [identity.model_id for identity in plan.replicas] == ["org/a"]


NEXT = desired(model("a", revision="v2"))


def test_an_on_demand_models_old_revision_stays_until_the_new_one_is_asked_for():
    wanted = desired(model("a", revision="v2", pinned=False))
    old = resident("a", revision="v1")
    assert spoken(decide(wanted, inventory(old)).actions) == []
    both = inventory(old, resident("a", revision="v2"))
    assert spoken(decide(wanted, both).actions) == ["unload org/a@v1 (superseded)"]


def test_a_new_revision_is_loaded_before_the_old_one_goes():
    old = resident("a", revision="v1")
    assert spoken(decide(NEXT, inventory(old)).actions) == ["load org/a@v2"]
    assert spoken(decide(NEXT, inventory(old, loading=[loading("a", revision="v2")])).actions) == []
    both = inventory(old, resident("a", revision="v2"))
    assert spoken(decide(NEXT, both).actions) == ["unload org/a@v1 (superseded)"]


def test_the_old_revision_goes_first_when_both_do_not_fit():
    failure = failed("a", "insufficient_memory", revision="v2", needed_bytes=100, available_bytes=20)
    plan = decide(NEXT, inventory(resident("a", revision="v1"), failed=[failure]))
    assert spoken(plan.actions)[0] == "unload org/a@v1 (superseded)"


def test_the_old_revision_stays_when_the_new_one_does_not_exist():
    failure = failed("a", "model_not_found", revision="v2")
    assert spoken(decide(NEXT, inventory(resident("a", revision="v1"), failed=[failure])).actions) == []


def test_changed_load_time_settings_load_a_pinned_model_anew_and_an_on_demand_one_at_its_next_load():
    seen = inventory(resident("a"))
    plan = decide(desired(model("a", load_settings={"dtype": "float16"})), seen)
    assert (spoken(plan.actions), state(plan)) == (["load org/a"], "Loading Loading")
    assert next(iter(plan.replicas.values())).resident
    on_demand = desired(model("a", pinned=False, load_settings={"dtype": "float16"}))
    assert spoken(decide(on_demand, seen).actions) == []


@pytest.mark.parametrize(
    ("wanted", "requested", "loaded_again"),
    [
        ({}, {}, False),
        ({"dtype": "float16"}, {"dtype": "float16"}, False),
        ({}, {"dtype": "float16"}, True),
        ({"dtype": "float16"}, {}, True),
        ({"quantization": "none"}, {}, True),
        ({"dtype": "auto"}, {"dtype": "auto"}, False),
        ({}, {"dtype": None}, False),
    ],
)
def test_a_pod_that_tells_what_it_was_asked_for_is_held_to_it_also_when_a_setting_is_taken_back(
    wanted, requested, loaded_again
):
    plan = decide(
        desired(model("a", load_settings=wanted)), inventory(resident("a", requested_settings=requested))
    )
    assert bool(spoken(plan.actions)) == loaded_again


def test_settings_that_the_pod_says_it_has_are_not_asked_for_again():
    wanted = desired(model("a", load_settings={"dtype": "float16"}))
    claim = wanted.claims[0]
    memory = Memory(instance="i-1", applied={claim.identity: claim.load_key})
    plan = decide(wanted, inventory(resident("a")), memory)
    assert spoken(plan.actions) == [] and plan.memory.applied == memory.applied

    restarted = decide(wanted, inventory(resident("a"), instance_id="i-2"), memory)
    assert spoken(restarted.actions) == ["load org/a"]
    edited = desired(model("a", generation=2, load_settings={"dtype": "float16"}))
    for others in (edited, desired(model("b"))):
        assert decide(others, inventory(resident("a")), memory).memory.applied == {}


# Start of a pod


@pytest.mark.parametrize(
    ("wanted", "seen", "synced"),
    [
        (desired(), inventory(synced=False), True),
        (ON_DEMAND, inventory(synced=False), True),
        (PINNED, inventory(synced=False), False),
        (PINNED, inventory(synced=False, loading=[loading("a")]), False),
        (PINNED, inventory(resident("a"), synced=False), True),
        (PINNED, inventory(synced=False, failed=[failed("a", "model_not_found")]), True),
        (PINNED, inventory(resident("a")), False),
    ],
    ids=[
        "nothing is wanted",
        "nothing is pinned",
        "a pinned model is missing",
        "a pinned model is loading",
        "all pinned models are in",
        "a pinned model cannot be loaded",
        "it knows already",
    ],
)
def test_a_pod_is_told_that_it_is_synced_once_its_pinned_models_are_in_or_have_failed(wanted, seen, synced):
    assert ("synced" in spoken(decide(wanted, seen).actions)) == synced


def test_the_list_reaches_a_new_pod_before_synced_does():
    plan = decide(ON_DEMAND, inventory(synced=False, declared_hash=None))
    assert spoken(plan.actions) == ["declare", "synced"]


# Quarantine

CRASHED = inventory(instance_id="i-2", crashed_loading=[{"model_id": "org/a", "kind": "serve"}])
IDENTITY = PINNED.claims[0].identity


def quarantined(wanted, until, *instances):
    return replace(wanted, quarantines={IDENTITY: Quarantine(1, until, "CrashedWhileLoading", instances)})


def test_a_death_during_a_load_stops_everything_on_that_pod_until_it_is_on_record():
    wanted = desired(model("a"), model("b"))
    plan = decide(wanted, CRASHED.model_copy(update={"declared_hash": None, "synced": False}))
    assert (spoken(plan.actions), state(plan)) == ([], "Failed CrashedWhileLoading")
    assert plan.crashes == {IDENTITY: Crash("i-2", "CrashedWhileLoading")}


def test_a_death_for_want_of_memory_is_called_so():
    assert decide(PINNED, CRASHED, oom_killed=True).crashes[IDENTITY].reason == "OOMKilled"


def test_a_changed_instance_while_weights_were_loaded_is_a_death_also_without_the_pods_own_word():
    before = decide(PINNED, inventory(loading=[loading("a")])).memory
    assert decide(PINNED, inventory(instance_id="i-2"), before).crashes
    downloading = decide(PINNED, inventory(loading=[loading("a", "download")])).memory
    assert not decide(PINNED, inventory(instance_id="i-2"), downloading).crashes


def test_a_model_in_quarantine_waits_while_the_others_come_back():
    wanted = quarantined(desired(model("a", priority=9), model("b")), NOW + 60, "i-2")
    plan = decide(wanted, CRASHED)
    assert (spoken(plan.actions), state(plan)) == (["load org/b"], "Failed CrashedWhileLoading")


def test_after_the_wait_it_is_tried_again():
    assert spoken(decide(quarantined(PINNED, NOW - 1, "i-2"), CRASHED).actions) == ["load org/a"]


def test_an_on_demand_model_is_loaded_once_by_order_after_its_wait():
    assert spoken(decide(quarantined(ON_DEMAND, NOW + 1, "i-2"), CRASHED).actions) == []
    assert spoken(decide(quarantined(ON_DEMAND, NOW - 1, "i-2"), CRASHED).actions) == ["load org/a"]


def test_requests_may_not_load_a_model_in_quarantine():
    wanted = quarantined(ON_DEMAND, NOW + 60, "i-2")
    entry = wanted.declaration(NOW)["models"][0]
    assert entry["blocked_until"] == "2027-01-15T08:01:00Z"
    after = wanted.declaration(NOW + 61)
    assert "blocked_until" not in after["models"][0]
    assert after["hash"] != wanted.declaration(NOW)["hash"]


def test_the_wait_grows_with_every_death_and_one_death_counts_once():
    record, waits = NONE, []
    for number in range(8):
        record = record.after(Crash(f"i-{number}", "OOMKilled"), NOW)
        record = record.after(Crash(f"i-{number}", "OOMKilled"), NOW + 5)
        waits.append(record.until - NOW)
    assert record.count == 8
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]


# Settings that a pod does not take


def refused(wanted):
    """The memory of a pod that takes none of the settings of the first claim."""
    claim = wanted.claims[0]
    return Memory(instance="i-1", refusals={claim.identity: Refusal(claim, "dtype: no such type")})


@pytest.mark.parametrize("wanted", [PINNED, ON_DEMAND], ids=["pinned", "on demand"])
@pytest.mark.parametrize("there", [True, False], ids=["there", "not there"])
def test_a_model_whose_settings_are_refused_is_failed_and_left_as_it_is(wanted, there):
    seen = inventory(*([resident("a")] if there else []), synced=False)
    plan = decide(wanted, seen, refused(wanted))
    assert spoken(plan.actions) == ["synced"]
    assert state(plan) == "Failed SettingsRefused"
    assert [replica.resident for replica in plan.replicas.values()] == [there]


def test_a_refusal_stands_until_the_model_is_edited_or_another_backend_comes_up():
    memory = refused(PINNED)
    assert standing(PINNED, inventory(), memory) == memory.refusals
    assert standing(desired(model("a", generation=2)), inventory(), memory) == {}
    assert standing(desired(model("b")), inventory(), memory) == {}
    assert standing(PINNED, inventory(instance_id="i-2"), memory) == {}


def test_what_is_left_out_of_the_declared_list_changes_its_hash():
    both = desired(model("a"), model("b"))
    left = both.declaration(NOW, {both.claims[0].identity})
    assert [entry["model_id"] for entry in left["models"]] == ["org/b"]
    assert left["hash"] == desired(model("b")).declaration(NOW)["hash"]
