"""What 500 FlexServModels on 10 pods cost: calls, writes and memory. Its speed is a matter of
hack/bench-operator, which has the machine for itself."""

import pytest

from tests.support.operator_scale import MAX_RSS_MIB, Scale
from tests.support.operator_world import World

TICK_S = 3


@pytest.mark.timeout(400)
def test_a_quiet_cluster_of_full_size_costs_one_look_per_pod_and_cycle_and_no_write(world: World):
    scale = Scale(world)
    scale.build(loaded=True, tick_seconds=str(TICK_S))
    scale.await_looks(2, timeout=60)

    before, versions, events = scale.sample(), scale.versions(), len(world.events("model-000"))
    scale.await_looks(3, timeout=60)
    after = scale.sample()

    cycles = after.cycles - before.cycles
    looks = [now - was for now, was in zip(after.gets, before.gets, strict=True)]
    assert max(looks) <= cycles + 1
    assert max(looks) <= (after.at - before.at) / TICK_S + 2
    assert after.posts == before.posts
    assert scale.versions() == versions
    assert len(world.events("model-000")) == events
    assert after.rss_mib < MAX_RSS_MIB
    for backend in scale.backends:
        assert not backend.begun
