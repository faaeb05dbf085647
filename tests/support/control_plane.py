"""A real kube-apiserver on a real etcd, on loopback and free ports: Kubernetes without nodes, in five
seconds.

What a kubelet would report (pod addresses, container restarts) a test writes into the pods' status itself.
"""

import base64
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from lab.ports import free_port

from tests.support.eventually import eventually

ADMIN_TOKEN = "admin-of-this-test-only"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 10
API_SERVER_LOG = "kube-apiserver.log"


class MissingBinary(Exception):
    """kube-apiserver or etcd is nowhere to be found."""


def find_binary(name: str) -> str:
    """The program's path: the project's cache first, then PATH."""
    cache = Path(os.environ.get("FLEXSERV_CACHE", Path.home() / ".cache" / "flexserv"))
    folders = [cache / "bin", cache / "debian" / "usr" / "bin"]
    found = shutil.which(name, path=os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")]))
    if found is None:
        raise MissingBinary(
            f"{name} is not in {folders[0]}, {folders[1]} or on PATH: run `hack/tools`, or install it"
        )
    return found


@dataclass
class ControlPlane:
    """Where the API server is, and a client for it that raises on errors."""

    url: str
    ca: Path
    folder: Path
    client: httpx.Client
    command: Sequence[str]
    _process: subprocess.Popen[bytes]

    def stop_api_server(self) -> None:
        """End the API server; etcd goes on. It keeps nothing, so there is nothing to be gentle with."""
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def start_api_server(self) -> None:
        """Start it again, at the same address, if it does not run."""
        if self._process.poll() is not None:
            self._process = _start(self.folder / API_SERVER_LOG, self.command)
        self.await_api_server()

    def await_api_server(self) -> None:
        log = self.folder / API_SERVER_LOG
        eventually(
            lambda: self.client.get("/readyz").text == "ok" or _died(self._process, log),
            timeout=START_TIMEOUT_S,
        )

    def forget(self, key: str) -> None:
        """Take an object out of etcd, past the API server; `key` is group/plural/namespace/name."""
        etcd = next(part for part in self.command if part.startswith("--etcd-servers=")).partition("=")[2]
        body = {"key": base64.b64encode(f"/registry/{key}".encode()).decode()}
        answer = httpx.post(f"{etcd}/v3/kv/deleterange", json=body, timeout=60, trust_env=False)
        assert answer.json().get("deleted") == "1", answer.text

    def kubeconfig(self, token: str = ADMIN_TOKEN) -> Path:
        """A kubeconfig for the user of `token`."""
        path = self.folder / f"kubeconfig-{token}"
        cluster = {"server": self.url, "certificate-authority": str(self.ca)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        }
        if not path.exists():
            path.write_text(yaml.safe_dump(content))
        return path

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One API call; PATCH is a merge patch. The API server's message is in the error."""
        headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        response = self.client.request(method, path, json=body, headers=headers)
        content: dict[str, Any] = response.json()
        if response.is_error:
            raise ApiRejected(response.status_code, str(content.get("message", content)))
        return content

    def install_crd(self, crd: Path) -> None:
        """Create the CRD of that file and wait until its objects can be listed."""
        definition = yaml.safe_load(crd.read_text())
        self.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        names, version = definition["spec"]["names"], definition["spec"]["versions"][0]["name"]
        path = f"/apis/{definition['spec']['group']}/{version}/{names['plural']}"
        eventually(lambda: self.call("GET", path)["kind"], timeout=START_TIMEOUT_S)


class ApiRejected(Exception):
    """The API server said no; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@contextmanager
def control_plane(folder: Path, users: Mapping[str, str] | None = None) -> Iterator[ControlPlane]:
    """Start etcd and kube-apiserver with state in `folder`; `users`: names by token (RBAC is on)."""
    binaries = {name: find_binary(name) for name in ("etcd", "kube-apiserver")}
    etcd_url, peer_url = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    with (
        _process(
            folder / "etcd.log",
            binaries["etcd"],
            f"--data-dir={folder / 'etcd'}",
            "--unsafe-no-fsync",  # what is in it need not outlive the machine
            f"--listen-client-urls={etcd_url}",
            f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
        ),
        _api_server(folder, binaries["kube-apiserver"], etcd_url, users or {}) as plane,
    ):
        yield plane


@contextmanager
def _api_server(folder: Path, binary: str, etcd_url: str, users: Mapping[str, str]) -> Iterator[ControlPlane]:
    key = folder / "service-account.key"
    key.write_bytes(
        rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    tokens = folder / "tokens.csv"
    rows = [f'{ADMIN_TOKEN},admin,admin,"system:masters"', *(f"{t},{u},{u}" for t, u in users.items())]
    tokens.write_text("\n".join(rows) + "\n")
    port = free_port()
    pki = folder / "pki"
    command = [
        binary,
        f"--etcd-servers={etcd_url}",
        f"--cert-dir={pki}",
        f"--token-auth-file={tokens}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
    ]
    log = folder / API_SERVER_LOG
    server = _start(log, command)
    certificate = pki / "apiserver.crt"
    try:
        eventually(lambda: certificate.exists() or _died(server, log), timeout=START_TIMEOUT_S)
    except BaseException:
        server.kill()
        server.wait(STOP_TIMEOUT_S)
        raise
    # The certificate that it makes for itself names the advertised address.
    url = f"https://127.0.0.1:{port}"
    with httpx.Client(
        base_url=url,
        verify=_trust(certificate),
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
        timeout=START_TIMEOUT_S,
        trust_env=False,
    ) as client:
        plane = ControlPlane(url, certificate, folder, client, command, server)
        try:
            plane.await_api_server()
            yield plane
        finally:
            plane.stop_api_server()


def _trust(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


def _died(process: subprocess.Popen[bytes], log: Path) -> bool:
    """False while the process lives; its end is no longer "not yet", so it is raised past the waiting."""
    if process.poll() is not None:
        raise SystemExit(f"it ended with {process.returncode}; its last words: {log.read_text()[-1500:]}")
    return False


@contextmanager
def _process(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the end of the block; what it prints goes to `log`."""
    process = _start(log, command)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)


def _start(log: Path, command: Sequence[str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
