"""With a cache that all pods share, files are fetched once."""

from tests.support.operator_world import World

SHARED = {"tick_seconds": "1", "poll_timeout_seconds": "5", "shared_cache": "true"}
ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


def test_one_pod_fetches_and_the_others_load_from_the_cache(world: World):
    cache: set[str] = set()
    pods = [
        world.add_pod(f"pod-{number}", address, fetch_seconds=3600, cache=cache)
        for number, address in enumerate(ADDRESSES)
    ]
    world.start_operator(**SHARED)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loading", "Loading")

    def replicas() -> list[str]:
        return sorted(replica["reason"] for replica in world.status("chat")["replicas"])

    world.soon(lambda: replicas() == ["Loading", "WaitingForFiles", "WaitingForFiles"])
    assert [len(pod.loads) for pod in pods].count(1) == 1
    for pod in pods:
        pod.fetch_seconds = 0.1
    assert world.reaches("chat", "Loaded")["ready"] == "3/3"
    assert [name for pod in pods for name in pod.fetched] == ["org/chat"]


def test_when_the_fetching_pod_fails_falls_silent_or_goes_the_next_one_takes_over(world: World):
    cache: set[str] = set()
    for number, address in enumerate(ADDRESSES):
        world.add_pod(f"pod-{number}", address, fetch_seconds=3600, cache=cache)
    world.start_operator(**{**SHARED, "poll_timeout_seconds": "1"})
    world.apply("chat", model="org/chat")
    by_name = dict(zip(("pod-0", "pod-1", "pod-2"), world.fleet.backends.values(), strict=True))

    def fetching() -> str | None:
        return next((name for name, pod in by_name.items() if pod.loads and not pod.hang), None)

    world.soon(fetching)
    first = fetching()
    by_name.pop(first).hang = True
    world.soon(fetching)
    second = fetching()
    assert second != first
    world.delete_pod(second)
    last = by_name[next(name for name in by_name if name != second)]
    last.fetch_seconds = 0.1
    world.soon(lambda: last.resident_ids() == ["org/chat"])


def test_a_successor_does_not_start_a_second_fetch(world: World):
    cache: set[str] = set()
    pods = [
        world.add_pod(f"pod-{number}", address, fetch_seconds=3600, cache=cache)
        for number, address in enumerate(ADDRESSES)
    ]
    operator = world.start_operator(**SHARED)
    world.apply("chat", model="org/chat")
    world.soon(lambda: any(pod.loads for pod in pods))
    operator.process.kill()
    looks = [len(pod.calls) for pod in pods]
    world.start_operator(**SHARED)
    world.soon(lambda: all(len(p.calls) >= n + 4 for p, n in zip(pods, looks, strict=True)))
    assert sum(len(pod.loads) for pod in pods) == 1


def test_without_a_shared_cache_all_pods_fetch_at_once(world: World):
    pods = [world.add_pod(f"pod-{n}", at, fetch_seconds=3600) for n, at in enumerate(ADDRESSES)]
    world.start_operator(tick_seconds="1")
    world.apply("chat", model="org/chat")
    world.soon(lambda: all(pod.loads for pod in pods))
