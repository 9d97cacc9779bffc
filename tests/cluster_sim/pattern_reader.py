"""A subscriber by pattern in worlds whose topics are created again: the real pull client and the
real watch of topics, asked of nodes of which some lag.

Invariant: at the end it has the present log of every topic, from its first record.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, cast

from samelog.admin.answers import TopicInfo, Topics
from samelog.admin.errors import AdminError
from samelog.replicator.pull.client import PullClient
from samelog.replicator.pull.options import PullOptions, PullParts
from samelog.subscriber.topics.chosen import parse_topics
from samelog.subscriber.topics.watching import LOOK_S, TopicWatch
from samelog.wire.pull.copies import CopyState
from tests.cluster_sim.process import Process
from tests.cluster_sim.subscriber import COPIES, SubscriberActor
from tests.cluster_sim.syncer import SimSyncer

if TYPE_CHECKING:
    from tests.cluster_sim.world import World


class _AnyNode:
    """Answers ListTopics as one of the nodes that run does, however far it lags."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance

    def ask(self, request: object, timeout_s: float) -> Topics:
        """Raises AdminError."""
        nodes = [actor.node for actor in self._world.nodes if actor.node is not None]
        if not nodes:
            raise AdminError("no node runs")
        topics = self._chance.choice(nodes).raft.replica.machine.state.topics.by_id.values()
        return Topics(
            tuple(TopicInfo(each.name, each.log_id, each.partitions, {}) for each in topics)
        )


class PatternReaderActor(SubscriberActor):
    """Copies all topics that its pattern matches."""

    async def run(self, process: Process) -> None:
        fs, config = self.file_system(process), self.client_config()
        chance = random.Random(f"{process.name} {self.world.options.seed}")
        topics = parse_topics(["t*"])
        watch = TopicWatch(config, topics)
        setattr(watch, "_connection", _AnyNode(self.world, chance))  # noqa: B010 - a fake
        client = self.client = PullClient(
            COPIES,
            (),
            config,
            PullParts(
                tls=cast(Any, self.tls()),
                fs=fs,
                syncer=SimSyncer(fs),
                clock=self.clock,
                random=chance,
            ),
            PullOptions(),
        )
        client.start()
        while True:
            for copy in tuple(client.copies.values()):
                if copy.state is CopyState.GONE and copy.name[0] in topics.names:
                    watch.deleted(copy.name[0], copy.log.topic_id)
                    topics.drop(copy.name[0])
                    client.follow(config, topics.names)
            self._take_up(watch, client)
            await asyncio.sleep(LOOK_S * chance.random())

    def _take_up(self, watch: TopicWatch, client: PullClient) -> None:
        try:
            new = watch.list_topics()
        except AdminError:
            return
        if new:
            watch._topics.add(new)
            client.follow(self.client_config(), watch._topics.names, new)
