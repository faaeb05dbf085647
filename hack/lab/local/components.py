"""The command lines of the node's components, in the order of their start. Pure."""

from lab.enclosure import Enclosure
from lab.local.credentials import token_of
from lab.local.layout import API_PORT, ETCD_URL, NODE, POD_NETWORK, SERVICE_NETWORK, Layout
from lab.local.settings import KERNEL_SETTINGS
from lab.places import binaries, cache, debian, models, state
from lab.plan import Component, Plan, Probe


def plan(layout: Layout, enclosure: Enclosure) -> Plan:
    """What the supervisor runs; the credentials must have been made."""
    return Plan(
        components=[
            _etcd(layout),
            _containerd(layout),
            _api_server(layout),
            _controller_manager(layout),
            _scheduler(layout),
            _kubelet(layout),
            _kube_proxy(layout),
        ],
        logs=str(enclosure.logs),
        report=str(enclosure.report_file),
        shielded=["/run", "/var"],
        kept=[str(path) for path in (state(), cache(), models()) if path.is_dir()],
        fixed_kernel_settings=KERNEL_SETTINGS,
    )


def _program(name: str) -> str:
    return str(binaries() / name)


def _etcd(layout: Layout) -> Component:
    argv = [
        str(debian() / "usr/bin/etcd"),
        f"--data-dir={layout.folder}/etcd",
        f"--listen-client-urls={ETCD_URL}",
        f"--advertise-client-urls={ETCD_URL}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        # The data live no longer than the cluster: nothing would be gained by waiting for the disk.
        "--unsafe-no-fsync",
    ]
    return Component("etcd", argv, Probe(url=f"{ETCD_URL}/health"))


def _containerd(layout: Layout) -> Component:
    argv = [str(debian() / "usr/bin/containerd"), "--config", str(layout.config_of("containerd.toml"))]
    return Component("containerd", argv, Probe(unix=str(layout.containerd_socket)))


def _api_server(layout: Layout) -> Component:
    pki = layout.pki
    argv = [
        _program("kube-apiserver"),
        f"--etcd-servers={ETCD_URL}",
        f"--bind-address={layout.node_address}",
        f"--advertise-address={layout.node_address}",
        f"--secure-port={API_PORT}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--token-auth-file={pki}/tokens.csv",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/service-accounts.pub",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        f"--kubelet-client-certificate={pki}/apiserver-to-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-to-kubelet.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--profiling=false",
    ]
    probe = Probe(url=f"{layout.api_url}/readyz", ca=str(pki / "ca.crt"), token=token_of(layout.kubeconfig))
    return Component("kube-apiserver", argv, probe, ready_seconds=120.0)


def _controller_manager(layout: Layout) -> Component:
    argv = [
        _program("kube-controller-manager"),
        f"--kubeconfig={layout.kubeconfig_of('kube-controller-manager')}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={layout.pki}/service-accounts.key",
        f"--root-ca-file={layout.pki}/ca.crt",
        "--allocate-node-cidrs=true",
        # A claim for the models is bound in a second instead of fifteen.
        "--pvclaimbinder-sync-period=1s",
        f"--cluster-cidr={POD_NETWORK}",
        f"--flex-volume-plugin-dir={layout.volume_plugins}",
    ]
    return Component("kube-controller-manager", argv)


def _scheduler(layout: Layout) -> Component:
    kubeconfig = layout.kubeconfig_of("kube-scheduler")
    argv = [
        _program("kube-scheduler"),
        f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
    ]
    return Component("kube-scheduler", argv)


def _kubelet(layout: Layout) -> Component:
    argv = [
        _program("kubelet"),
        f"--config={layout.config_of('kubelet.yaml')}",
        f"--kubeconfig={layout.kubeconfig_of('kubelet')}",
        f"--root-dir={layout.folder}/kubelet",
        f"--cert-dir={layout.pki}",
        f"--hostname-override={NODE}",
        f"--node-ip={layout.node_address}",
    ]
    return Component("kubelet", argv, Probe(url="http://127.0.0.1:10248/healthz"))


def _kube_proxy(layout: Layout) -> Component:
    argv = [_program("kube-proxy"), f"--config={layout.config_of('kube-proxy.yaml')}"]
    return Component("kube-proxy", argv, Probe(url="http://127.0.0.1:10256/livez"))
