"""Short ways to write down what is desired and what a pod says, for tests of the operator's decisions."""

from collections.abc import Mapping
from typing import Any

from flexserv_operator.claims import merge
from flexserv_operator.decide import plan
from flexserv_operator.desired import Desired, Model
from flexserv_operator.inventory import Identity, Inventory
from flexserv_operator.plans import Action, Declare, Load, Memory, Plan, Sync
from flexserv_operator.unloads import Disown, Unload

NOW = 1_800_000_000.0
NAMESPACE = "team"


def model(
    name: str, *, age: int = 0, revision: str | None = None, kind: Any = "serve", **fields: Any
) -> Model:
    """A FlexServModel called `name` for org/<name>; a greater `age` is an older one."""
    model_id = fields.pop("model_id", f"org/{name}")
    return Model(
        namespace=NAMESPACE,
        name=name,
        uid=f"uid-{name}",
        generation=fields.pop("generation", 1),
        created=f"2026-01-{28 - age:02}T00:00:00Z",
        identity=Identity(kind, model_id, revision),
        **fields,
    )


def desired(*models: Model, foreign: tuple[str, ...] = ()) -> Desired:
    return merge(NAMESPACE, models, foreign)


def resident(name: str, **fields: Any) -> dict[str, Any]:
    """A model in memory, owned by the FlexServModel of its name."""
    settings = {
        "dtype": "auto",
        "quantization": None,
        "attn_implementation": None,
        "trust_remote_code": False,
    }
    named = {"model_id": f"org/{name}", "kind": "serve", "owner": owner(name), "bytes": 100}
    return {**named, "settings": settings, **fields}


def loading(name: str, stage: str = "weights", since: float = 1, **fields: Any) -> dict[str, Any]:
    """A load that began `since` seconds ago."""
    named = {"model_id": f"org/{name}", "kind": "serve", "owner": owner(name), "load_id": f"load-{name}"}
    return {**named, "stage": stage, "started_at": NOW - since, **fields}


def failed(name: str, code: str, load_id: str = "load-1", **fields: Any) -> dict[str, Any]:
    named = {"model_id": f"org/{name}", "kind": "serve", "load_id": load_id, "code": code}
    return {**named, "message": code.replace("_", " "), "at": NOW, **fields}


def evicted(name: str, reason: str, ago: float = 1, count: int = 1) -> dict[str, Any]:
    return {
        "model_id": f"org/{name}",
        "kind": "serve",
        "reason": reason,
        "seq": count,
        "at": NOW - ago,
        "count": count,
    }


def owner(name: str, namespace: str = NAMESPACE, uid: str | None = None) -> str:
    return f"{namespace}/{name}#{uid or f'uid-{name}'}"


def inventory(*models: dict[str, Any], **fields: Any) -> Inventory:
    """What a pod says; by default it knows the declared list and is synced."""
    answer = {
        "instance_id": "i-1",
        "pod_uid": "p-1",
        "synced": True,
        "declared_hash": "same",
        "models": models,
    }
    return Inventory.model_validate({**answer, **fields})


def decide(
    wanted: Desired,
    seen: Inventory,
    memory: Memory | None = None,
    now: float = NOW,
    oom_killed: bool = False,
    elsewhere: Mapping[Identity, str] | None = None,
) -> Plan:
    """A decision where the declared list is known to the pod as "same"."""
    return plan(wanted, "same", seen, memory or Memory(), now, oom_killed, elsewhere or {})


def spoken(actions: tuple[Action, ...]) -> list[str]:
    """Actions as words."""
    words = []
    for action in actions:
        match action:
            case Declare():
                words.append("declare")
            case Sync():
                words.append("synced")
            case Disown():
                words.append(f"disown {action.identity}")
            case Unload():
                words.append(f"unload {action.identity} ({action.why})")
            case Load():
                words.append(f"load {action.claim.identity}")
    return words
