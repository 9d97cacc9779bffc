"""Topics whose records nodes check, in a world: some records do not fit, are never merged, and must
be kept by who wrote them.

Invariant: looking changes nothing.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow  # noqa: F401  # real files are read for it: not in a world

from samelog.sequencer.judging.process import CannotCheck
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.typed.judging import PLAIN, BatchMisfits, Terms
from tests.cluster_sim.inode import Inode
from tests.cluster_sim.options import Options, with_rules
from tests.cluster_sim.violation import Violation
from tests.judging.judges import InlineJudge

if TYPE_CHECKING:
    from samelog.sequencer.state.tables.topics import Topic
    from tests.cluster_sim.history import Name
    from tests.cluster_sim.publisher import PublisherActor

SCHEMA = '{"format":"csv","columns":[{"name":"a","type":"string"}]}'
BREAKS = 0.02
"""So often nothing is said of what was asked."""


def with_checks(options: Options, seed: int) -> Options:
    """The same world, but nodes check the records of all topics."""
    draw = random.Random(f"records are checked {seed}")
    return replace(with_rules(options), misfits=draw.choice((0.05, 0.3)))


class SimJudge(InlineJudge):
    """Takes its time, and says nothing now and then. Implements BatchJudge."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def judge(
        self,
        who: Hashable,
        key: str,
        texts: Sequence[str],
        batches: Sequence[bytes],
        *,
        terms: Terms = PLAIN,
    ) -> list[BatchMisfits]:
        """Judge them, a while later."""
        await asyncio.sleep(self._chance.expovariate(1 / 0.02))
        if self._chance.random() < BREAKS:
            raise CannotCheck("the process that checks has ended", is_for_long=False)
        return await super().judge(who, key, texts, batches, terms=terms)


def lacks_schema(topic: Topic) -> SetSchemaCommand | None:
    """What gives a topic its schema, if it has none."""
    return None if topic.schemas else SetSchemaCommand(topic.topic_id, 0, SCHEMA, 0)


def spoilt(
    chance: random.Random, share: float, values: Sequence[bytes]
) -> tuple[list[bytes], list[int]]:
    """Some of these do not fit, but for the last one; which ones."""
    found = [place for place in range(len(values) - 1) if chance.random() < share]
    return [v + b",x" if n in found else v for n, v in enumerate(values)], found


class Misfits:
    """What each publisher wrote that does not fit."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str, Name], list[tuple[tuple[int, int], bytes]]] = {}
        """(session, run id, partition) -> end of the append, and value."""
        self.kept = 0

    def written(
        self, whose: tuple[str, str, Name], end: tuple[int, int], values: Sequence[bytes]
    ) -> None:
        """Such records are in the file."""
        self._waiting.setdefault(whose, []).extend((end, value) for value in values)

    def check_kept(
        self, actor: PublisherActor, run_id: str, name: Name, place: tuple[int, int]
    ) -> None:
        """Everything up to a place is merged: what was refused of it is kept here. Raises
        Violation.
        """
        waiting = self._waiting.get((actor.session, run_id, name), [])
        if not waiting or waiting[0][0] > place or actor.was_restored:
            return
        kept = _kept(actor)
        while waiting and waiting[0][0] <= place:
            _, value = waiting.pop(0)
            if value not in kept:
                raise Violation("refused is kept", f"{actor.session} lacks {value[:60]!r}")
            self.kept += 1


def _kept(actor: PublisherActor) -> set[bytes]:
    file = actor.disk.find(f"{actor.path}/refused")
    lines = bytes(file.data).splitlines() if isinstance(file, Inode) else []
    return {base64.b64decode(json.loads(line)["value"]) for line in lines}
