"""What a backend pod may write, where, and how much of it."""

from typing import Any

import pytest

from tests.support.chart import Manifests, nested, render

LARGE: dict[str, Any] = {"requests": {"ephemeral-storage": "1Gi"}}


def volume(manifests: Manifests, name: str) -> dict[str, Any] | None:
    return next((v for v in manifests.pod("backend")["volumes"] if v["name"] == name), None)


def mount(manifests: Manifests, name: str) -> dict[str, Any] | None:
    return next((m for m in manifests.container("backend")["volumeMounts"] if m["name"] == name), None)


def volume_limits(manifests: Manifests, component: str) -> dict[str, str | None]:
    return {
        volume["name"]: volume["emptyDir"].get("sizeLimit")
        for volume in manifests.pod(component)["volumes"]
        if "emptyDir" in volume
    }


def ephemeral(manifests: Manifests) -> tuple[str | None, str | None]:
    resources = manifests.container("backend")["resources"]
    return tuple(resources.get(part, {}).get("ephemeral-storage") for part in ("requests", "limits"))  # type: ignore[return-value]


@pytest.mark.parametrize("component", ["backend", "operator"])
def test_every_volume_on_the_nodes_disk_has_a_limit(component: str) -> None:
    limits = volume_limits(render(), component)

    assert limits and all(limits.values()), limits


def test_what_the_volumes_may_hold_is_asked_of_the_node() -> None:
    values = {"scratchSize": "1Gi", "tmpSize": "512Mi", "cache": {"size": "10Gi"}}
    requests, limits = ephemeral(render({"backend": values}))

    assert requests == limits == f"{1024 + 512 + 16 + 256 + 10 * 1024}Mi"


def test_a_claim_is_no_disk_of_the_node() -> None:
    for cache in ({"persistent": True, "size": "10Ti"}, {"existingClaim": "mine", "size": "10Ti"}):
        requests, limits = ephemeral(render({"backend": {"cache": cache}}))
        assert requests == limits == f"{5 * 1024 + 2 * 1024 + 16 + 256}Mi"


@pytest.mark.parametrize("part", ["requests", "limits"])
def test_what_a_user_asks_of_the_node_is_taken_as_it_is(part: str) -> None:
    values = {"cpu": "2", "ephemeral-storage": "70Gi"}
    rendered = render(nested(f"backend.resources.{part}", values))

    assert rendered.container("backend")["resources"][part].items() >= values.items()
    assert sorted(str(quantity) for quantity in ephemeral(rendered)) == ["70Gi", "None"]


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("50Gi", 50 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("2Ti", 2**41),
        ("500M", 500_000_000),
        ("4k", 4000),
        ("3Ei", 3 * 2**60),
        ("1073741824", 2**30),
    ],
)
def test_the_backend_knows_how_large_its_cache_may_grow(size: str, count: int) -> None:
    for cache in ({"size": size}, {"size": size, "persistent": True}):
        env = render({"backend": {"cache": cache, "resources": LARGE}}).env("backend")
        assert env["FLEXSERV_CACHE_LIMIT_BYTES"] == str(count)


def test_the_size_of_an_existing_claim_is_what_its_file_system_says() -> None:
    env = render(nested("backend.cache", {"existingClaim": "mine", "size": "1Gi"})).env("backend")

    assert "FLEXSERV_CACHE_LIMIT_BYTES" not in env


def test_all_that_libraries_write_goes_to_volumes() -> None:
    manifests = render()
    env = manifests.env("backend")
    mounts = {m["mountPath"] for m in manifests.container("backend")["volumeMounts"] if not m.get("readOnly")}

    written = (
        "HF_HOME",
        "XDG_CACHE_HOME",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "MPLCONFIGDIR",
        "HOME",
    )
    for name in written:
        assert any(env[name] == path or env[name].startswith(f"{path}/") for path in mounts), name
    assert mounts == {"/cache", "/scratch", "/state", "/tmp", "/dev/shm"}


@pytest.mark.parametrize(
    ("cache", "source"),
    [
        ({"size": "7Gi"}, {"emptyDir": {"sizeLimit": "7Gi"}}),
        ({"persistent": True}, {"persistentVolumeClaim": {"claimName": "flexserv-cache"}}),
        ({"existingClaim": "mine"}, {"persistentVolumeClaim": {"claimName": "mine"}}),
        ({"existingClaim": "mine", "persistent": True}, {"persistentVolumeClaim": {"claimName": "mine"}}),
    ],
)
def test_the_cache_lies_where_the_values_say(cache: dict[str, Any], source: dict[str, Any]) -> None:
    manifests = render(nested("backend.cache", cache))

    assert volume(manifests, "cache") == {"name": "cache", **source}
    made = [claim["metadata"]["name"] for claim in manifests.all("PersistentVolumeClaim")]
    assert made == (["flexserv-cache"] if cache.get("persistent") and "existingClaim" not in cache else [])


@pytest.mark.parametrize(
    ("storage_class", "rendered"),
    [(None, {}), ("", {"storageClassName": ""}), ("fast", {"storageClassName": "fast"})],
)
def test_no_storage_class_is_not_the_empty_one(storage_class: str | None, rendered: dict[str, str]) -> None:
    values = nested("backend.cache", {"persistent": True, "storageClassName": storage_class})
    spec = render(values).one("PersistentVolumeClaim", "cache")["spec"]

    assert {name: value for name, value in spec.items() if name == "storageClassName"} == rendered


def test_models_are_mounted_read_only_where_there_is_a_claim() -> None:
    assert volume(render(), "models") is None
    manifests = render(nested("backend.models.existingClaim", "weights"))

    claim = {"claimName": "weights", "readOnly": True}
    assert volume(manifests, "models") == {"name": "models", "persistentVolumeClaim": claim}
    assert mount(manifests, "models") == {"name": "models", "mountPath": "/models", "readOnly": True}
