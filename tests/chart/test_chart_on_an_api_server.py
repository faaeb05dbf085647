"""What only a real API server can say: admission, who owns the CRD, and what install and uninstall leave."""

from functools import partial
from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, ROOT, SCENARIOS, ChartRefused, helm, render, scenario
from tests.support.control_plane import ApiRejected, ControlPlane
from tests.support.eventually import eventually

SAMPLES = ROOT / "hack" / "samples"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/flexservmodels.flexserv.io"
COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Service": "/api/v1/namespaces/{}/services",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
}


def install(plane: ControlPlane, namespace: str, *arguments: str, release: str = "flexserv") -> str:
    values = ("--set", "backend.gpu.count=0", *arguments)
    return helm(
        "install", release, str(CHART), "--namespace", namespace, *values, kubeconfig=plane.kubeconfig()
    )


def uninstall(plane: ControlPlane, namespace: str, release: str = "flexserv") -> str:
    return helm("uninstall", release, "--namespace", namespace, kubeconfig=plane.kubeconfig())


def owner(plane: ControlPlane) -> tuple[str, str]:
    annotations = plane.call("GET", CRD)["metadata"]["annotations"]
    return annotations["meta.helm.sh/release-namespace"], annotations["meta.helm.sh/release-name"]


def left_behind(plane: ControlPlane, namespace: str) -> list[str]:
    found = []
    for kind, path in COLLECTIONS.items():
        for item in plane.call("GET", path.format(namespace))["items"]:
            found.append(f"{kind}/{item['metadata']['name']}")
    return found


def a_model(plane: ControlPlane, namespace: str, name: str = "smollm2") -> None:
    path = f"/apis/flexserv.io/v1alpha1/namespaces/{namespace}/flexservmodels"
    body = {"apiVersion": "flexserv.io/v1alpha1", "kind": "FlexServModel", "metadata": {"name": name}}
    eventually(lambda: plane.call("POST", path, {**body, "spec": {"model": "org/name"}}), timeout=20)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_every_pod_is_admitted_by_the_restricted_standard(
    plane: ControlPlane, namespace: str, path: Any
) -> None:
    pods = render(scenario(path)).pods()
    assert pods
    for name, pod in pods:
        spec = {
            k: v
            for k, v in pod["spec"].items()
            if k not in ("serviceAccountName", "priorityClassName", "runtimeClassName")
        }
        body = {"metadata": {**pod["metadata"], "name": name, "namespace": namespace}, "spec": spec}
        assert plane.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)["kind"] == "Pod"


def test_a_pod_that_is_not_restricted_is_refused_here(plane: ControlPlane, namespace: str) -> None:
    """The test above means something: the standard is enforced."""
    name, pod = render().pods()[0]
    spec = {**pod["spec"], "securityContext": {}}
    del spec["serviceAccountName"]
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    with pytest.raises(ApiRejected, match="restricted"):
        plane.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)


@pytest.mark.usefixtures("no_crd")
def test_a_release_comes_and_goes_while_models_exist(plane: ControlPlane, namespace: str) -> None:
    install(plane, namespace)
    assert "Deployment/flexserv-backend" in left_behind(plane, namespace)
    a_model(plane, namespace)

    uninstall(plane, namespace)

    assert left_behind(plane, namespace) == []
    model = plane.call("GET", f"/apis/flexserv.io/v1alpha1/namespaces/{namespace}/flexservmodels/smollm2")
    assert model["spec"]["model"] == "org/name"


@pytest.mark.usefixtures("no_crd")
def test_a_release_takes_its_kept_crd_back(plane: ControlPlane, namespace: str) -> None:
    install(plane, namespace)
    uninstall(plane, namespace)

    install(plane, namespace)

    assert owner(plane) == (namespace, "flexserv")


@pytest.mark.usefixtures("no_crd")
def test_the_crd_goes_where_it_is_not_to_be_kept(plane: ControlPlane, namespace: str) -> None:
    install(plane, namespace, "--set", "crds.keep=false")
    uninstall(plane, namespace)

    eventually(lambda: plane.client.get(CRD).status_code == 404, timeout=20)


@pytest.mark.usefixtures("no_crd")
def test_a_second_release_is_told_how_to_use_the_crd_of_the_first(
    plane: ControlPlane, namespace: str
) -> None:
    install(plane, namespace)
    other = f"{namespace}-other"
    plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": other}})

    with pytest.raises(
        ChartRefused, match=rf"namespace {namespace} \(which may no longer exist\).*--set crds\.enabled=false"
    ):
        install(plane, other)
    assert left_behind(plane, other) == []

    install(plane, other, "--set", "crds.enabled=false")
    a_model(plane, other)
    assert owner(plane) == (namespace, "flexserv")


@pytest.mark.usefixtures("no_crd")
def test_a_crd_that_was_applied_by_hand_can_be_handed_over_as_the_message_says(
    plane: ControlPlane, namespace: str
) -> None:
    plane.install_crd(CHART / "files" / "flexservmodel-crd.yaml")
    with pytest.raises(ChartRefused, match="belongs to no Helm release") as refused:
        install(plane, namespace)
    assert f"meta.helm.sh/release-namespace={namespace}" in str(refused.value)

    annotations = {"meta.helm.sh/release-name": "flexserv", "meta.helm.sh/release-namespace": namespace}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    plane.call("PATCH", CRD, {"metadata": {"annotations": annotations, "labels": labels}})

    install(plane, namespace)
    assert owner(plane) == (namespace, "flexserv")


@pytest.mark.usefixtures("no_crd")
def test_the_operator_may_do_its_work_in_its_namespace_and_nothing_else(
    plane: ControlPlane, namespace: str
) -> None:
    install(plane, namespace)

    def may(verb: str, resource: str, where: str = namespace) -> bool:
        name, _, subresource = resource.partition("/")
        group = "flexserv.io" if name == "flexservmodels" else ""
        attributes = {
            "verb": verb,
            "group": group,
            "resource": name,
            "subresource": subresource,
            "namespace": where,
        }
        user = f"system:serviceaccount:{namespace}:flexserv-operator"
        review = {"spec": {"user": user, "resourceAttributes": attributes}}
        answer = plane.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    for resource in ("flexservmodels", "pods", "services"):
        assert [verb for verb in ("get", "list", "watch") if not may(verb, resource)] == []
        assert [verb for verb in ("create", "update", "patch", "delete") if may(verb, resource)] == []
        assert not may("list", resource, where="default")
    assert may("patch", "flexservmodels/status")
    assert may("create", "events")
    assert not may("get", "secrets") and not may("create", "pods/exec")


@pytest.mark.usefixtures("no_crd")
def test_a_value_can_be_changed_by_an_upgrade(plane: ControlPlane, namespace: str) -> None:
    install(plane, namespace)
    helm(
        "upgrade", "flexserv", str(CHART), "--namespace", namespace, "--reuse-values",
        "--set", "backend.settings.modelTimeout=0", kubeconfig=plane.kubeconfig(),
    )  # fmt: skip

    deployment = plane.call("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/flexserv-backend")
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "FLEXSERV_MODEL_TIMEOUT", "value": "0"} in env


@pytest.mark.usefixtures("no_crd")
def test_the_notes_lead_to_a_first_answer(plane: ControlPlane, namespace: str) -> None:
    notes = install(plane, namespace, "--set", "backend.auth.token.secretName=clients").partition("NOTES:")[2]

    assert f"kubectl -n {namespace} rollout status deployment/flexserv-backend" in notes
    assert f"kubectl -n {namespace} port-forward service/flexserv 8001:80" in notes
    assert "get secret clients" in notes
    assert '{{index .data "token" | base64decode}}' in notes
    assert "no token is asked for" not in notes
    assert "has no memory limit" in notes
    manifest = notes.partition("<<EOF")[2].partition("EOF")[0]
    path = (
        f"/apis/flexserv.io/v1alpha1/namespaces/{namespace}/flexservmodels?dryRun=All&fieldValidation=Strict"
    )
    model = yaml.safe_load(manifest)
    eventually(lambda: plane.call("POST", path, model), timeout=20)


@pytest.mark.usefixtures("no_crd")
def test_the_samples_are_what_the_api_server_takes(plane: ControlPlane, namespace: str) -> None:
    install(plane, namespace, "--values", str(SAMPLES / "demo-values.yaml"))
    path = (
        f"/apis/flexserv.io/v1alpha1/namespaces/{namespace}/flexservmodels?dryRun=All&fieldValidation=Strict"
    )
    for name in ("models.yaml", "missing-model.yaml"):
        for model in yaml.safe_load_all((SAMPLES / name).read_text(encoding="utf-8")):
            eventually(partial(plane.call, "POST", path, model), timeout=20)

    text = (SAMPLES / "models-volume.yaml").read_text(encoding="utf-8")
    volume, claim = yaml.safe_load_all(
        text.replace("__MODELS_FOLDER__", "/models").replace("__NAMESPACE__", namespace)
    )
    strict = "?dryRun=All&fieldValidation=Strict"
    assert plane.call("POST", f"/api/v1/persistentvolumes{strict}", volume)["kind"] == "PersistentVolume"
    plane.call("POST", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims{strict}", claim)
    demo = yaml.safe_load((SAMPLES / "demo-values.yaml").read_text(encoding="utf-8"))
    assert demo["backend"]["models"]["existingClaim"] == claim["metadata"]["name"]
    assert volume["spec"]["claimRef"]["name"] == claim["metadata"]["name"]


@pytest.mark.usefixtures("no_crd")
@pytest.mark.parametrize(
    ("on_demand", "told"),
    [
        ("any", "the backend loads a model when a request asks for it"),
        ("off", 'with backend.settings.onDemand "off" a request loads no model'),
    ],
)
def test_the_notes_without_an_operator_say_who_loads_models(
    plane: ControlPlane, namespace: str, on_demand: str, told: str
) -> None:
    values = f"operator.enabled=false,backend.settings.onDemand={on_demand},backend.service.type=NodePort"
    notes = install(plane, namespace, "--set", values).partition("NOTES:")[2]

    assert told in notes
    assert "kubectl apply" not in notes and "ADDRESS" not in notes
    assert "jsonpath='{.spec.ports[0].nodePort}'" in notes and "curl http://NODE:PORT/v1/chat" in notes
    assert not any(line.startswith("{{") for line in notes.splitlines())


@pytest.mark.usefixtures("no_crd")
def test_the_notes_tell_a_second_release_that_another_one_adopts_models(
    plane: ControlPlane, namespace: str
) -> None:
    first = install(plane, namespace)
    adopts = install(plane, namespace, "--set", "crds.enabled=false", release="second")
    alone = install(
        plane, namespace, "--set", "crds.enabled=false,operator.adoptUnreferenced=false", release="third"
    )

    warning = "WARNING: flexserv-operator in this namespace adopts FlexServModels"
    assert warning in adopts and "backendRef:\n    name: second-flexserv" in adopts
    assert "adopts FlexServModels" not in first and "backendRef" not in first
    assert "adopts FlexServModels" not in alone and "backendRef:\n    name: third-flexserv" in alone
    again = helm(
        "upgrade", "flexserv", str(CHART), "--namespace", namespace, "--reset-then-reuse-values",
        kubeconfig=plane.kubeconfig(),
    )  # fmt: skip
    assert "WARNING: second-flexserv-operator in this namespace adopts" in again
