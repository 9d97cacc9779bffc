"""What must follow once a simulated world is healed.

Invariant: time is bounded; whatever does not hold by then never may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.checker import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

REST_S = 5.0


def check_progress(world: World) -> None:
    """A leader is found, a new proposal is applied by all members, a read is answered."""
    end = world.now + world.options.liveness_s
    if not world.run_until(end, lambda: world.leader() is not None):
        raise Violation("no leader after everything was healed")
    target = world.checker.committed_index + 3
    if not world.run_until(end, lambda: world.applied_everywhere(target)):
        raise Violation(f"entry {target} is not applied everywhere: {world.nodes_state()}")
    answered = world.checker.reads + 3
    if not world.run_until(end, lambda: world.checker.reads >= answered):
        raise Violation("reads are not answered")
    if world.options.quiet and not world.options.changes:  # who was removed asks for votes
        _check_rest(world)


def _check_rest(world: World) -> None:
    """A group in which nothing happens has no timers; when something does, it goes on."""
    world.is_idle = True
    if not world.run_until(world.now + world.options.liveness_s, lambda: _all_rest(world)):
        raise Violation(f"an idle group does not rest: {world.nodes_state()}")
    world.run_until(world.now + REST_S, None)
    if not _all_rest(world):
        raise Violation(f"an idle group woke: {world.nodes_state()}")
    world.is_idle = False
    target = world.checker.committed_index + 3
    if not world.run_until(
        world.now + world.options.liveness_s, lambda: world.applied_everywhere(target)
    ):
        raise Violation(f"a group that rested does not go on: {world.nodes_state()}")


def _all_rest(world: World) -> bool:
    members = world.checker.membership
    there = [node for node in world.nodes if node.number in members and not node.stays_away]
    return all(node.up and node.raft.rests for node in there)
