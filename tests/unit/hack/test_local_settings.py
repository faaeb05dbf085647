"""What the node's components are told: nothing of it may open the machine or touch what is not ours."""

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest
from lab.enclosure import Enclosure
from lab.errors import MissingError
from lab.local import components, credentials, network
from lab.local.layout import NODE, USERS, Layout
from lab.local.settings import render
from lab.plan import Component, dump, load

NODE_ADDRESS = "10.213.0.2"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    here = Layout(tmp_path / "cluster", "10.213.0.1", NODE_ADDRESS)
    here.pki.mkdir(parents=True)
    here.kubeconfig.write_text(json.dumps(credentials.kubeconfig(here.api_url, b"ca", "admin", "secret")))
    return here


def parsed(layout: Layout, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(render(layout)[name])
    return value


def started(layout: Layout) -> dict[str, Component]:
    return {one.name: one for one in components.plan(layout, Enclosure(layout.folder)).components}


def test_kubelet_asks_the_api_server_who_may_do_what(layout: Layout) -> None:
    kubelet = parsed(layout, "kubelet.yaml")
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["authentication"]["webhook"] == {"enabled": True}
    assert kubelet["authorization"] == {"mode": "Webhook"}
    assert kubelet["readOnlyPort"] == 0
    assert kubelet["address"] == NODE_ADDRESS


def test_the_api_server_listens_on_the_nodes_address_and_knows_nobody_without_a_token(layout: Layout) -> None:
    argv = started(layout)["kube-apiserver"].argv
    assert f"--bind-address={NODE_ADDRESS}" in argv
    assert "--anonymous-auth=false" in argv


def test_no_component_listens_on_every_address(layout: Layout) -> None:
    words = [word for one in started(layout).values() for word in one.argv] + list(render(layout).values())
    assert not [
        word
        for word in words
        if "0.0.0.0:" in word or "address=0.0.0.0" in word or '"address": "0.0.0.0' in word
    ]


def test_components_start_in_the_order_in_which_they_need_each_other(layout: Layout) -> None:
    names = list(started(layout))
    for earlier, later in (
        ("etcd", "kube-apiserver"),
        ("containerd", "kubelet"),
        ("kube-apiserver", "kubelet"),
    ):
        assert names.index(earlier) < names.index(later)


def test_containerd_keeps_its_data_socket_and_cni_in_our_folder(layout: Layout) -> None:
    text = render(layout)["containerd.toml"]
    assert f'root = "{layout.folder}/containerd"' in text
    assert f'address = "{layout.folder}/containerd.sock"' in text
    assert f'conf_dir = "{layout.folder}/config/cni"' in text
    assert "restrict_oom_score_adj = true" in text


def test_pods_run_under_a_cgroup_of_our_own(layout: Layout) -> None:
    assert parsed(layout, "kubelet.yaml")["cgroupRoot"] == f"/{layout.cgroup}"
    assert layout.cgroup.startswith("flexserv-")


def test_a_plan_survives_the_way_through_its_file(layout: Layout, tmp_path: Path) -> None:
    plan = components.plan(layout, Enclosure(layout.folder))
    dump(plan, tmp_path / "plan.json")
    assert load(tmp_path / "plan.json") == plan
    assert (tmp_path / "plan.json").stat().st_mode & 0o077 == 0


def test_only_the_administrator_is_in_the_masters_group() -> None:
    lines = credentials.token_file({user: f"token-of-{user}" for user in USERS}).splitlines()
    assert [line for line in lines if "system:masters" in line] == [
        'token-of-admin,admin,admin,"system:masters"'
    ]
    assert f'token-of-kubelet,system:node:{NODE},system:node:{NODE},"system:nodes"' in lines


def test_tokens_are_new_with_each_cluster(tmp_path: Path) -> None:
    tokens = set()
    for number in (1, 2):
        layout = Layout(tmp_path / str(number), "10.213.0.1", NODE_ADDRESS)
        layout.folder.mkdir()
        credentials.create(layout)
        tokens |= {credentials.token_of(layout.kubeconfig_of(user)) for user in USERS}
        assert layout.kubeconfig.stat().st_mode & 0o077 == 0
    assert len(tokens) == 2 * len(USERS)


@pytest.mark.parametrize(
    ("in_use", "picked"),
    [
        ([], "10.213.0.0/30"),
        (["10.213.0.0/30"], "10.213.1.0/30"),
        (["10.213.0.0/23", "192.168.0.0/16"], "10.213.2.0/30"),
        (["10.213.0.1/32"], "10.213.1.0/30"),
    ],
)
def test_the_cable_takes_the_first_network_that_is_free(in_use: list[str], picked: str) -> None:
    assert str(network.pick(ipaddress.IPv4Network(one) for one in in_use)) == picked


def test_no_free_network_is_an_error_that_says_so() -> None:
    with pytest.raises(MissingError, match=r"no network in 10\.213\.0\.0/16 is free"):
        network.pick([ipaddress.IPv4Network("10.0.0.0/8")])
