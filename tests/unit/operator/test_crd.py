"""The CRD and the code that fills and reads it."""

from pathlib import Path

import pytest
import yaml
from flexserv_operator.inventory import Eviction
from flexserv_operator.metrics import PHASES
from flexserv_operator.quarantine import NONE, Crash
from flexserv_operator.replica import Replica, State
from flexserv_operator.status import MAX_REPLICAS, build

from tests.support.operator_values import NOW, desired, evicted, model

CRD = Path(__file__).parents[3] / "charts" / "flexserv" / "files" / "flexservmodel-crd.yaml"
VERSION = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
STATUS = SCHEMA["properties"]["status"]


def fields(schema, path=""):
    """Every property of the schema, with its path."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from fields(inner, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")


def test_every_field_is_explained():
    silent = [path for path, schema in fields(SCHEMA) if "description" not in schema and path != ".metadata"]
    assert not silent


def test_every_rule_names_the_field_and_a_remedy():
    rules = [rule for _, schema in fields(SCHEMA) for rule in schema.get("x-kubernetes-validations", ())]
    assert len(rules) >= 12
    assert all(rule["message"].startswith("spec.") for rule in rules)


def full_status():
    wanted = model("a", served_name="x")
    replicas = {
        "p": Replica(
            "Failed", "LoadFailed", "why", True, "c0ffee", Eviction.model_validate(evicted("a", "idle"))
        )
    }
    record = NONE.after(Crash("i", "OOMKilled"), NOW)
    return build(wanted, {}, desired(wanted).claims[0], "flexserv", replicas, NOW, quarantine=record)


def check(value, schema, path):
    if isinstance(value, dict):
        unknown = set(value) - set(schema["properties"])
        assert not unknown, f"{path} would be pruned of {unknown}"
        for name, inner in value.items():
            check(inner, schema["properties"][name], f"{path}.{name}")
    if isinstance(value, list):
        for inner in value:
            check(inner, schema["items"], f"{path}[]")
    if "enum" in schema:
        assert value in schema["enum"], path


def test_nothing_that_the_operator_writes_is_pruned_and_it_writes_all_there_is():
    status = full_status()
    check(status, STATUS, "status")
    assert set(status) == set(STATUS["properties"])


def test_words_and_limits_are_the_same_in_both():
    assert tuple(STATUS["properties"]["phase"]["enum"]) == PHASES
    assert STATUS["properties"]["replicas"]["maxItems"] == MAX_REPLICAS
    states = STATUS["properties"]["replicas"]["items"]["properties"]["state"]["enum"]
    assert set(states) == set(State.__args__)


@pytest.mark.parametrize(
    ("priority", "columns"),
    [(0, ["Model", "Phase", "Ready", "Reason", "Age"]), (1, ["Residency", "Served name", "Message"])],
)
def test_the_columns(priority, columns):
    shown = VERSION["additionalPrinterColumns"]
    assert [column["name"] for column in shown if column.get("priority", 0) == priority] == columns
