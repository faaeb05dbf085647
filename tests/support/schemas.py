"""JSON schemas of what the chart can make, as files for kubeconform: Kubernetes' own, and CRDs."""

import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

Schema = dict[str, Any]
LOCATION = "{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json"
"""How kubeconform finds a schema below the folder."""


def write_kubernetes_schemas(folder: Path, version: str, kinds: Iterable[tuple[str, str]]) -> None:
    """The schemas of these (apiVersion, kind) pairs; fields that they do not know are refused."""
    source = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local"
    definitions = json.loads((source / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    for api_version, kind in kinds:
        group, _, number = api_version.rpartition("/")
        suffix = "-".join(filter(None, [group.partition(".")[0], number]))
        schema = json.loads((source / f"{kind.lower()}-{suffix}.json").read_text(encoding="utf-8"))
        needed: Schema = {}
        _write(folder, group, kind, number, _local(schema, definitions, needed) | {"definitions": needed})


def write_crd_schemas(folder: Path, crds: Iterable[Path]) -> list[tuple[str, str]]:
    """The schemas of these CRDs, each version; returns their (apiVersion, kind) pairs."""
    found = []
    for path in crds:
        spec = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)["spec"]
        for version in spec["versions"]:
            schema = _closed(version["schema"]["openAPIV3Schema"])
            _write(folder, spec["group"], spec["names"]["kind"], version["name"], schema)
            found.append((f"{spec['group']}/{version['name']}", spec["names"]["kind"]))
    return found


def _write(folder: Path, group: str, kind: str, version: str, schema: Schema) -> None:
    place = folder / (group or version)  # kubeconform takes v1 for the group of the core objects
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{kind.lower()}_{version}.json").write_text(json.dumps(schema), encoding="utf-8")


def _local(node: Any, definitions: Schema, needed: Schema) -> Any:
    """The same without unknown fields and with references into the same file; what they name is `needed`."""
    if isinstance(node, list):
        return [_local(one, definitions, needed) for one in node]
    if not isinstance(node, dict):
        return node
    copy = {key: _local(value, definitions, needed) for key, value in node.items()}
    if isinstance(copy.get("$ref"), str):
        name = copy["$ref"].rpartition("/")[2]
        copy["$ref"] = f"#/definitions/{name}"
        if name not in needed:
            needed[name] = {}  # it may refer to itself
            needed[name] = _local(definitions[name], definitions, needed)
    if isinstance(copy.get("properties"), dict):
        copy.setdefault("additionalProperties", False)
    return copy


def _closed(node: Any) -> Any:
    """A structural schema as JSON schema: what it does not name is refused, as the API server prunes it."""
    if isinstance(node, list):
        return [_closed(one) for one in node]
    if not isinstance(node, dict):
        return node
    copy = {key: _closed(value) for key, value in node.items()}
    if copy.pop("x-kubernetes-int-or-string", False):
        copy.pop("type", None)
    opened = copy.pop("x-kubernetes-preserve-unknown-fields", False)
    named = isinstance(copy.get("properties"), dict) and "type" in copy
    if named and not opened:
        copy.setdefault("additionalProperties", False)
    return copy
