"""The container's memory, from folders that look like /proc and /sys/fs/cgroup of various machines."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hf_transformers_backend.cgroup import ContainerMemory, read_container_memory

MIB = 1024**2
GIB = 1024**3
NODE = 64 * GIB
UNLIMITED_V1 = 9223372036854771712


def write_process(root: Path, cgroup: str, mountinfo: str, mapped_bytes: int = 0) -> None:
    own = root / "proc/self"
    own.mkdir(parents=True)
    (own / "cgroup").write_text(cgroup)
    (own / "mountinfo").write_text(mountinfo)
    (own / "status").write_text(f"Name:\tpython\nVmRSS:\t1 kB\nRssFile:\t{mapped_bytes // 1024} kB\n")


def write_level(folder: Path, files: Mapping[str, object], stat: Mapping[str, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text("".join(f"{name} {value}\n" for name, value in stat.items()))


V2_MOUNT = "24 1 0:22 / /sys/fs/cgroup rw,relatime shared:1 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 /kubepods/pod1/box /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
HYBRID_MOUNTS = (
    "34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
V2_STAT = {
    "anon": 3 * GIB,
    "file": 2 * GIB,
    "kernel": 300 * MIB,
    "shmem": 256 * MIB,
    "sock": 1 * MIB,
    "inactive_file": 1 * GIB,
    "file_mapped": 600 * MIB,
    "slab_reclaimable": 200 * MIB,
}


def test_what_counts_in_v2_is_what_cannot_be_reclaimed(tmp_path: Path) -> None:
    write_process(tmp_path, "0::/\n", V2_MOUNT, mapped_bytes=512 * MIB)
    files = {"memory.max": 8 * GIB, "memory.high": "max", "memory.current": 6 * GIB}
    write_level(tmp_path / "sys/fs/cgroup", files, V2_STAT)
    memory = read_container_memory(NODE, tmp_path)
    expected = 3 * GIB + 256 * MIB + (300 - 200) * MIB + 1 * MIB + 512 * MIB
    assert memory == ContainerMemory(
        limit_bytes=8 * GIB, usage_bytes=6 * GIB, working_set_bytes=5 * GIB, unreclaimable_bytes=expected
    )
    assert memory.available_bytes == 8 * GIB - expected


def test_a_kernel_that_does_not_sum_its_own_memory_is_summed_from_its_parts(tmp_path: Path) -> None:
    write_process(tmp_path, "0::/\n", V2_MOUNT)
    files = {"memory.max": 8 * GIB, "memory.current": 6 * GIB}
    stat = {
        "anon": 3 * GIB,
        "kernel_stack": 2 * MIB,
        "pagetables": 3 * MIB,
        "percpu": 4 * MIB,
        "slab_reclaimable": 900 * MIB,
        "slab_unreclaimable": 5 * MIB,
    }
    write_level(tmp_path / "sys/fs/cgroup", files, stat)
    memory = read_container_memory(NODE, tmp_path)
    assert memory is not None
    assert memory.unreclaimable_bytes == 3 * GIB + 14 * MIB


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": 8 * GIB, "memory.high": 6 * GIB}, 6 * GIB),
        ({"memory.max": "max", "memory.high": 6 * GIB}, 6 * GIB),
        ({"memory.max": 8 * GIB, "memory.high": "max"}, 8 * GIB),
        ({"memory.max": "max", "memory.high": "max"}, None),
        ({"memory.max": NODE}, None),
        ({"memory.max": NODE + GIB}, None),
        ({}, None),
    ],
    ids=["high below max", "only high", "only max", "neither", "as large as the node", "larger", "no files"],
)
def test_the_lower_of_max_and_high_binds_if_it_is_below_the_nodes_memory(
    tmp_path: Path, files: dict[str, object], limit: int | None
) -> None:
    write_process(tmp_path, "0::/\n", V2_MOUNT)
    write_level(tmp_path / "sys/fs/cgroup", {**files, "memory.current": 1 * GIB}, V2_STAT)
    memory = read_container_memory(NODE, tmp_path)
    assert (None if memory is None else memory.limit_bytes) == limit


def test_of_nested_limits_the_one_with_the_least_left_binds(tmp_path: Path) -> None:
    write_process(tmp_path, "0::/kubepods/pod1/box\n", V2_MOUNT)
    top = tmp_path / "sys/fs/cgroup"
    write_level(top / "kubepods/pod1/box", {"memory.max": 8 * GIB, "memory.current": GIB}, {"anon": GIB})
    # The pod's limit is higher, and a sidecar has eaten most of it.
    write_level(top / "kubepods/pod1", {"memory.max": 10 * GIB, "memory.current": 9 * GIB}, {"anon": 9 * GIB})
    write_level(top / "kubepods", {"memory.max": "max", "memory.current": 20 * GIB}, {"anon": 20 * GIB})
    memory = read_container_memory(NODE, tmp_path)
    assert memory is not None
    assert (memory.limit_bytes, memory.available_bytes) == (10 * GIB, 1 * GIB)


def test_what_counts_in_v1_is_told_by_the_totals_of_the_hierarchy(tmp_path: Path) -> None:
    write_process(tmp_path, "4:memory:/kubepods/pod1/box\n0::/\n", V1_MOUNT, mapped_bytes=512 * MIB)
    files = {
        "memory.limit_in_bytes": 4 * GIB,
        "memory.usage_in_bytes": 3 * GIB,
        "memory.kmem.usage_in_bytes": 64 * MIB,
    }
    stat = {
        "rss": 1,
        "total_rss": 1 * GIB,
        "total_shmem": 32 * MIB,
        "total_inactive_file": 512 * MIB,
        "total_cache": 2 * GIB,
        "mapped_file": 1,
        "total_mapped_file": 600 * MIB,
    }
    write_level(tmp_path / "sys/fs/cgroup/memory", files, stat)
    assert read_container_memory(NODE, tmp_path) == ContainerMemory(
        limit_bytes=4 * GIB,
        usage_bytes=3 * GIB,
        working_set_bytes=3 * GIB - 512 * MIB,
        unreclaimable_bytes=1 * GIB + 32 * MIB + 64 * MIB + 512 * MIB,
    )


def test_the_largest_number_of_v1_means_no_limit(tmp_path: Path) -> None:
    write_process(tmp_path, "4:memory:/\n0::/\n", V1_MOUNT)
    files = {"memory.limit_in_bytes": UNLIMITED_V1, "memory.usage_in_bytes": GIB}
    write_level(tmp_path / "sys/fs/cgroup/memory", files, {"total_rss": GIB})
    assert read_container_memory(NODE, tmp_path) is None


def test_on_a_hybrid_machine_the_memory_controller_is_the_one_of_v1(tmp_path: Path) -> None:
    write_process(tmp_path, "4:memory:/docker/box\n0::/docker/box\n", HYBRID_MOUNTS)
    folder = tmp_path / "sys/fs/cgroup"
    (folder / "unified/docker/box").mkdir(parents=True)
    files = {"memory.limit_in_bytes": 4 * GIB, "memory.usage_in_bytes": 1 * GIB}
    write_level(folder / "memory/docker/box", files, {"total_rss": MIB})
    memory = read_container_memory(NODE, tmp_path)
    assert memory is not None
    assert memory.limit_bytes == 4 * GIB


@pytest.mark.parametrize("path", ["/../../elsewhere", "/not/mounted/here"])
def test_a_path_that_a_namespace_hides_means_the_mount_itself(tmp_path: Path, path: str) -> None:
    write_process(tmp_path, f"0::{path}\n", V2_MOUNT)
    files = {"memory.max": 2 * GIB, "memory.current": GIB}
    write_level(tmp_path / "sys/fs/cgroup", files, {"anon": GIB})
    memory = read_container_memory(NODE, tmp_path)
    assert memory is not None
    assert memory.limit_bytes == 2 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_mapped_pages_that_another_cgroup_is_charged_for_do_not_count(tmp_path: Path, version: int) -> None:
    if version == 2:
        write_process(tmp_path, "0::/\n", V2_MOUNT, mapped_bytes=5 * GIB)
        files = {"memory.max": 2 * GIB, "memory.current": 1 * GIB}
        write_level(tmp_path / "sys/fs/cgroup", files, {"anon": GIB // 2, "file_mapped": 7 * MIB})
    else:
        write_process(tmp_path, "4:memory:/\n", V1_MOUNT, mapped_bytes=5 * GIB)
        files = {"memory.limit_in_bytes": 2 * GIB, "memory.usage_in_bytes": 1 * GIB}
        stat = {"total_rss": GIB // 2, "total_mapped_file": 7 * MIB}
        write_level(tmp_path / "sys/fs/cgroup/memory", files, stat)
    memory = read_container_memory(NODE, tmp_path)
    assert memory is not None
    assert memory.unreclaimable_bytes == GIB // 2 + 7 * MIB


def test_no_more_is_in_use_than_is_charged(tmp_path: Path) -> None:
    write_process(tmp_path, "0::/\n", V2_MOUNT, mapped_bytes=5 * GIB)
    files = {"memory.max": 2 * GIB, "memory.current": 1 * GIB}
    write_level(tmp_path / "sys/fs/cgroup", files, {"anon": GIB // 2})
    memory = read_container_memory(NODE, tmp_path)
    assert memory is not None
    assert memory.unreclaimable_bytes == 1 * GIB


def test_a_machine_without_cgroups_has_no_container(tmp_path: Path) -> None:
    assert read_container_memory(NODE, tmp_path) is None
    write_process(tmp_path, "", "")
    assert read_container_memory(NODE, tmp_path) is None


def test_the_container_of_this_very_process_can_be_read() -> None:
    memory = read_container_memory(1 << 62)
    assert memory is None or 0 < memory.unreclaimable_bytes <= memory.usage_bytes
