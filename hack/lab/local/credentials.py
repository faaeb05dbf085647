"""Certificates, tokens and kubeconfigs of one cluster; all of them made anew with each cluster."""

import base64
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.commands import run
from lab.local.layout import API_SERVICE_ADDRESS, USERS, Layout

_SECONDS = 30.0
_DAYS = "365"
_EC_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]


def create(layout: Layout) -> None:
    """Write everything into the layout's pki folder, readable by root only."""
    layout.pki.mkdir(mode=0o700)
    (layout.pki / "openssl.cnf").write_text("[req]\ndistinguished_name = name\n[name]\n")
    _authority(layout.pki)
    api_names = ["DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc", "DNS:localhost"]
    api_addresses = [f"IP:{layout.node_address}", f"IP:{API_SERVICE_ADDRESS}", "IP:127.0.0.1"]
    _certificate(layout.pki, "apiserver", "/CN=kube-apiserver", "serverAuth", [*api_names, *api_addresses])
    _certificate(layout.pki, "kubelet", "/CN=kubelet", "serverAuth", [f"IP:{layout.node_address}"])
    _certificate(layout.pki, "apiserver-to-kubelet", "/O=system:masters/CN=kube-apiserver", "clientAuth", [])
    key = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    private, public = layout.pki / "service-accounts.key", layout.pki / "service-accounts.pub"
    run(["openssl", *key, "-out", private], timeout=_SECONDS)
    run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], timeout=_SECONDS)
    tokens = {user: secrets.token_urlsafe(32) for user in USERS}
    _private(layout.pki / "tokens.csv", token_file(tokens))
    authority = (layout.pki / "ca.crt").read_bytes()
    for user, token in tokens.items():
        config = kubeconfig(layout.api_url, authority, user, token)
        _private(layout.kubeconfig_of(user), json.dumps(config, indent=1) + "\n")


def token_file(tokens: dict[str, str]) -> str:
    """The API server's table of static tokens: token, user, uid, groups."""
    lines = []
    for user, token in tokens.items():
        name, group = USERS[user]
        lines.append(f'{token},{name},{name},"{group}"' if group else f"{token},{name},{name}")
    return "\n".join(lines) + "\n"


def kubeconfig(url: str, authority: bytes, user: str, token: str) -> dict[str, Any]:
    """One cluster, one user, one context; nothing refers to another file."""
    data = base64.b64encode(authority).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "flexserv", "cluster": {"server": url, "certificate-authority-data": data}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "flexserv", "context": {"cluster": "flexserv", "user": user}}],
        "current-context": "flexserv",
    }


def token_of(kubeconfig_file: Path) -> str:
    """The token in a kubeconfig that `create` wrote."""
    raw: dict[str, Any] = json.loads(kubeconfig_file.read_text())
    return str(raw["users"][0]["user"]["token"])


def _authority(pki: Path) -> None:
    extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
    _request(pki, "ca", "/CN=flexserv-cluster", extensions, [])


def _certificate(pki: Path, name: str, subject: str, usage: str, alternatives: Sequence[str]) -> None:
    extensions = [
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        f"extendedKeyUsage={usage}",
        "authorityKeyIdentifier=keyid",
    ]
    if alternatives:
        extensions.append(f"subjectAltName={','.join(alternatives)}")
    _request(pki, name, subject, extensions, ["-CA", str(pki / "ca.crt"), "-CAkey", str(pki / "ca.key")])


def _request(pki: Path, name: str, subject: str, extensions: Sequence[str], signer: Sequence[str]) -> None:
    added = [word for one in ["subjectKeyIdentifier=hash", *extensions] for word in ("-addext", one)]
    files = ["-keyout", str(pki / f"{name}.key"), "-out", str(pki / f"{name}.crt")]
    fixed = ["-config", str(pki / "openssl.cnf"), "-days", _DAYS, "-subj", subject]
    run(["openssl", "req", "-x509", *_EC_KEY, *fixed, *added, *signer, *files], timeout=_SECONDS)


def _private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
