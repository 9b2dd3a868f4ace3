"""Whatever members do and suffer, no partition has two owners; left in peace, each has exactly one."""
import pytest

from kiel.exc import RebalanceError
from tests.groups.simulation import World


def befall(world):
    """Something happens to the group."""
    chance = world.random
    living = world.living()
    what = chance.choice("start start static leave die stall hang disconnect move change peace".split())
    if what == "start" and len(living) < 5:
        world.start()
    elif what == "static" and not any(process.instance for process in living):
        world.start("one")
    elif what == "move":
        world.coordinator.move(chance.uniform(0, 3), chance.uniform(0, 1))
    elif living:
        victim = chance.choice(living)
        if what == "leave":
            victim.leave()
        elif what == "die":
            victim.die()
        elif what in ("stall", "hang") and not victim.stalled:
            victim.stall(chance.uniform(0.1, 4) if what == "stall" else chance.uniform(7, 12))
        elif what == "disconnect":
            victim.disconnect()
        elif what == "change" and not victim.stalled:
            victim.subscribe()


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
@pytest.mark.parametrize("seed", range(12))
def test_every_partition_has_at_most_one_owner_and_in_peace_one(seed, cooperative):
    world = World(seed, cooperative)
    world.start()
    for _ in range(80):
        befall(world)
        world.run(world.random.expovariate(0.25))
    world.slow = False
    world.start()
    world.run(100)
    assert [partition for partition, owners in world.owners().items() if len(owners) != 1] == []
    assert world.steps > 1000


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_a_member_that_leaves_is_replaced_at_once_and_one_that_dies_after_its_session(cooperative):
    world = World(1, cooperative)
    world.slow = False
    first, second, third = [world.start() for _ in range(3)]
    world.run(60)
    assert all(process.machine.owned for process in (first, second, third))
    third.leave()
    world.run(12)
    assert third.machine.state == "left"
    assert first.machine.owned | second.machine.owned == world.partitions
    second.die()
    world.run(20)
    assert first.machine.owned == world.partitions


def test_cooperative_members_keep_what_does_not_move():
    world = World(2, True)
    world.slow = False
    first = world.start()
    world.run(10)
    kept = set(world.partitions)
    first.watch = lambda: kept.intersection_update(first.machine.owned)
    world.start()
    world.run(30)
    assert len(kept) == 3


def test_a_coordinator_that_moves_costs_nobody_a_partition():
    world = World(3, False)
    world.slow = False
    first, second = world.start(), world.start()
    world.run(30)
    before = first.machine.generation, first.machine.owned
    world.coordinator.move(1.5, 0.5)
    world.run(10)
    assert (first.machine.generation, first.machine.owned) == before
    assert second.machine.state == "stable" and first.machine.coordinator == 2


def test_without_a_coordinator_the_application_is_told_and_its_next_call_joins():
    world = World(4, False)
    world.slow = False
    world.coordinator.move(20, 0)
    process = world.start()
    told = []
    process.tell = told.append
    world.run(15)
    assert told and isinstance(told[0], RebalanceError)
    world.run(30)
    assert process.machine.owned == world.partitions


def test_a_second_process_with_the_same_instance_fences_the_first():
    world = World(5, False)
    world.slow = False
    world.strict = False  # the coordinator gives the second the first one's place before that can know of it
    first, told = world.start("one"), []
    first.tell = told.append
    world.run(10)
    second = world.start("one")
    world.run(30)
    assert first.machine.state == "fenced" and second.machine.owned == world.partitions
    assert told and set(error.name for error in told) == {"FENCED_INSTANCE_ID"}
