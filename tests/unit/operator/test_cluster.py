"""What the operator makes of the API server's objects."""

import pytest
from flexserv_operator.cluster import Cluster, Listed, read_listed, readable
from flexserv_operator.pods import read_pod, read_service
from flexserv_operator.silence import silence

from tests.support.operator_values import model


def pod(name="p", **changes):
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"app": "flexserv"}},
        "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8001}]}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }
    for key, value in changes.items():
        body[key] = {**body[key], **value}
    return body


def service(name="flexserv", port=None, selector=None):
    ports = [port or {"name": "http", "port": 80, "targetPort": "http"}]
    spec = {"selector": {"app": "flexserv"} if selector is None else selector, "ports": ports}
    return read_service({"metadata": {"name": name}, "spec": spec})


def cluster(models=(), pods=(), services=(), adopts=True, claims=None):
    """`claims` is status.backend by name."""
    made = Cluster("team", "flexserv", adopts)
    made.attach(
        {
            "flexservmodels": {
                each.uid: [
                    Listed(each, {"backend": claims[each.name]} if each.name in (claims or {}) else {}, "1")
                ]
                for each in models
            },
            "pods": {read_pod(body).uid: [read_pod(body)] for body in pods},
            "services": {each.name: [each] for each in services},
        }
    )
    return made


@pytest.mark.parametrize(
    ("port", "address", "url"),
    [
        ({"name": "http", "port": 80, "targetPort": "http"}, "10.0.0.1", "http://10.0.0.1:8001"),
        ({"name": "http", "port": 80, "targetPort": 9000}, "10.0.0.1", "http://10.0.0.1:9000"),
        ({"port": 80}, "10.0.0.1", "http://10.0.0.1:80"),
        ({"port": 80, "targetPort": "http"}, "fd00::1", "http://[fd00::1]:8001"),
        ({"port": 80, "targetPort": "other"}, "10.0.0.1", None),
        ({"port": 80, "targetPort": "http"}, None, None),
    ],
)
def test_a_pod_is_addressed_on_its_own_ip_at_the_port_that_the_service_means(port, address, url):
    assert read_pod(pod(status={"podIP": address})).url(service(port=port)) == url


CRASH_LOOP = {"started": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
NOT_STARTED = {"started": False, "state": {"running": {}}}
CREATING = {"started": False, "state": {"waiting": {"reason": "ContainerCreating"}}}


@pytest.mark.parametrize(
    ("status", "looks"),
    [
        ({"phase": "Pending"}, "Pending BackendStarting"),
        ({"phase": "Pending", "containerStatuses": [CREATING]}, "Pending BackendStarting"),
        ({"phase": "Running", "containerStatuses": [NOT_STARTED]}, "Pending BackendStarting"),
        ({"phase": "Running", "containerStatuses": [{"started": True}]}, "Unreachable BackendUnreachable"),
        ({"phase": "Running", "containerStatuses": [CRASH_LOOP]}, "Unreachable BackendUnreachable"),
        ({"phase": "Running"}, "Unreachable BackendUnreachable"),
    ],
)
def test_a_pod_that_cannot_answer_yet_is_starting_and_one_that_should_is_unreachable(status, looks):
    replica = silence(read_pod(pod(status=status)), "BackendUnreachable", "refused")
    assert f"{replica.state} {replica.reason}" == looks


def test_a_pod_whose_container_does_not_come_up_says_why():
    seen = read_pod(pod(status={"phase": "Running", "containerStatuses": [CRASH_LOOP]}))
    assert "CrashLoopBackOff" in silence(seen, "BackendUnreachable", "refused").message


def test_a_pod_that_lies_while_it_starts_is_called_a_liar():
    seen = read_pod(pod(status={"phase": "Running", "containerStatuses": [NOT_STARTED]}))
    assert silence(seen, "BackendIncredible", "no JSON").reason == "BackendIncredible"


def test_an_object_that_breaks_its_schema_stops_nobody_and_its_model_is_not_touched():
    assert readable(read_listed, {"kind": "FlexServModel", "metadata": {"uid": "u"}, "spec": {}}) is None
    seen = cluster(models=[model("a")], services=[service()])
    seen._indexes["flexservmodels"]["uid-broken"] = [None]
    seen._indexes["pods"]["uid-odd"] = [None]
    view = seen.view()
    assert list(view.desired.models) == ["uid-a"]
    assert "uid-broken" in view.desired.foreign
    assert "uid-broken" in seen.known()


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"status": {"phase": "Pending", "podIP": None}}, True),
        ({"status": {"phase": "Failed"}}, False),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"metadata": {"labels": {"app": "other"}}}, False),
        ({"metadata": {"labels": None}}, False),
    ],
    ids=[
        "running, not ready",
        "not started yet",
        "failed",
        "finished",
        "terminating",
        "another's",
        "unlabeled",
    ],
)
def test_pods_are_those_of_the_service_that_are_not_on_their_way_out(changes, counts):
    assert bool(cluster(pods=[pod(**changes)], services=[service()]).view().pods) == counts


def test_a_service_without_a_selector_has_no_pods():
    assert not cluster(pods=[pod()], services=[service(selector={})]).view().pods


def test_an_oom_kill_is_seen_in_the_last_state_of_a_container():
    last = {"containerID": "x", "lastState": {"terminated": {"reason": "OOMKilled"}}}
    assert read_pod(pod(status={"containerStatuses": [last]})).oom_killed
    assert not read_pod(pod()).oom_killed


@pytest.mark.parametrize(
    ("backend", "claim", "adopts", "services", "place"),
    [
        (None, None, True, ["flexserv"], "ours"),
        (None, "flexserv", True, ["flexserv", "other"], "ours"),
        (None, "other", True, ["flexserv", "other"], "left"),
        (None, "other", True, ["flexserv"], "ours"),
        (None, None, True, [], "ours"),
        (None, "other", True, [], "left"),
        (None, None, False, ["flexserv"], "left"),
        (None, "other", False, ["flexserv"], "left"),
        (None, "flexserv", False, ["flexserv"], "released"),
        ("flexserv", "other", False, ["flexserv", "other"], "ours"),
        ("other", "flexserv", True, ["flexserv", "other"], "foreign"),
        ("other", None, True, ["flexserv"], "stray"),
    ],
)
def test_whose_a_flexservmodel_is(backend, claim, adopts, services, place):
    claims = {"a": claim} if claim else {}
    seen = cluster([model("a", backend=backend)], (), map(service, services), adopts, claims).view()
    found = {
        "ours": bool(seen.desired.models),
        "stray": bool(seen.strays),
        "foreign": "uid-a" in seen.desired.foreign and not seen.strays,
        "released": bool(seen.released),
    }
    assert [name for name, true in found.items() if true] == ([] if place == "left" else [place])
    # What this operator once loaded of a model that is another one's by now is garbage on its pods.
    assert (seen.desired.foreign == {"uid-a"}) == (backend == "other")


@pytest.mark.parametrize(
    ("claims", "ours"),
    [
        ({}, ["new", "old"]),
        ({"old": "other"}, []),
        ({"old": "flexserv"}, ["new", "old"]),
        ({"old": "gone"}, ["new", "old"]),
        ({"new": "other"}, []),
        ({"old": "other", "new": "flexserv"}, ["new"]),
        ({"old": "flexserv", "new": "other"}, ["old"]),
    ],
)
def test_whoever_adopted_the_oldest_flexservmodel_adopts_the_new_ones(claims, ours):
    models = [model("new", age=1), model("old", age=2)]
    view = cluster(models, (), [service(), service("other")], claims=claims).view()
    assert sorted(each.name for each in view.desired.models.values()) == ours


def test_an_operator_says_once_to_whom_it_leaves_flexservmodels(caplog):
    seen = cluster([model("a"), model("b")], (), [service(), service("other")], claims={"a": "other"})
    for _ in range(2):
        seen.view()
    (record,) = caplog.records
    assert "Service other" in record.getMessage() and "--adopt-unreferenced" in record.getMessage()


def test_nothing_is_complete_before_the_indexes_have_what_a_list_has():
    watched = cluster([model("a")])
    watched.compare(set(), {"uid-a", "uid-b"})
    assert not watched.complete
    watched.compare(set(), {"uid-a"})
    assert watched.complete


def test_what_was_deleted_while_the_watch_was_broken_is_forgotten():
    watched = cluster([model("a"), model("b")])
    watched.compare(watched.known(), {"uid-a"})
    assert set(watched.view().desired.models) == {"uid-a"}


def test_what_was_created_after_the_list_is_not_taken_for_deleted():
    watched = cluster([model("a"), model("new")])
    watched.compare({"uid-a"}, {"uid-a"})
    assert set(watched.view().desired.models) == {"uid-a", "uid-new"}
