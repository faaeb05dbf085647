"""The configuration files of the node's components. Pure: a layout in, text out. JSON is YAML too."""

import json
from typing import Any

from lab.local.layout import KUBELET_PORT, NODE, PAUSE_IMAGE, POD_NETWORK, Layout
from lab.places import debian

KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What kubelet wants to find, else it sets it for the whole machine."""


def render(layout: Layout) -> dict[str, str]:
    """File name to content."""
    return {
        "containerd.toml": _containerd(layout),
        "kubelet.yaml": _text(_kubelet(layout)),
        "kube-proxy.yaml": _text(_kube_proxy(layout)),
        "cni/10-flexserv.conflist": _text(_cni(layout)),
    }


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1) + "\n"


def _containerd(layout: Layout) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE no pod could start, as pause wants to be killed last.
    return f"""version = 2
root = "{layout.folder}/containerd"
state = "/run/containerd"

[grpc]
address = "{layout.containerd_socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{debian()}/usr/lib/cni"
conf_dir = "{layout.config_of("cni")}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{debian()}/usr/sbin/runc"
SystemdCgroup = false
"""


def _kubelet(layout: Layout) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.node_address,
        "port": KUBELET_PORT,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "tlsCertFile": str(layout.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "kubelet.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "podLogsDir": str(layout.folder / "pod-logs"),
        "volumePluginDir": str(layout.volume_plugins),
        # There is no DNS in this cluster. The node refuses at once where an unused address would time out.
        "clusterDNS": [layout.node_address],
        "clusterDomain": "cluster.local",
        "resolvConf": "/dev/null",
        # The disk is the machine's: how full it is says nothing about us, and images cannot be pulled again.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }


def _kube_proxy(layout: Layout) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(layout.kubeconfig_of("kube-proxy"))},
        "mode": "iptables",
        # A Service leads to a pod as soon as that is Ready; the default gathers changes for a second.
        "iptables": {"minSyncPeriod": "0s"},
        "hostnameOverride": NODE,
        "clusterCIDR": POD_NETWORK,
        "conntrack": {"maxPerCore": 0, "min": 0},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "nodePortAddresses": [f"{layout.node_address}/32"],
        "oomScoreAdj": 0,
    }


def _cni(layout: Layout) -> dict[str, Any]:
    # Cables instead of a bridge: on a bridge, replies to a Service's client need the br_netfilter module.
    # The only node gets the first /24 of the pod network from the controller manager.
    cable = {
        "type": "ptp",
        "ipMasq": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(layout.folder / "pod-addresses"),
            "ranges": [[{"subnet": POD_NETWORK.replace("/16", "/24")}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "flexserv", "plugins": [cable, ports]}
