"""`samelog recover void`: give up records that no node has any more, so that a partition goes on.

Invariant: only what every node that answers misses is given up, and nothing without the
confirmation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from samelog.admin.answers import Status
from samelog.admin.client import AdminError, all_statuses, ask
from samelog.admin.requests import VoidRecords
from samelog.cli.output import client_option, fail, json_option, print_json, talk
from samelog.config.tables.client import ClientConfig


class Copy(NamedTuple):
    """One node's copy of the partition: where it ends, and up to where it misses records for good
    (0: it misses none).
    """

    node: str
    end_offset: int
    wanted_offset: int


@click.command("void")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option("--lost", "without", multiple=True, metavar="NODE", help="A node that is gone.")
@click.option("--confirm", metavar="TOPIC", help="The topic's name: yes, I want this.")
@client_option
@json_option
def command(config: ClientConfig, as_json: bool, **options: Any) -> None:
    """Give up the records that PARTITION of TOPIC waits for and no node has any more.

    A batch that is damaged on every node holds up its partition. RESTORE IT IF YOU CAN: start the
    nodes that are away, start the publisher, bring the files back from a backup. This fills the
    offsets with void batches, which all readers pass over, and leaves an event in the status. A
    node that turns out to have the records sets them aside. Name nodes that are gone for ever with
    --lost.

    \b
    Examples:
      samelog recover void trades 0 --config client.toml
      samelog recover void trades 0 --config client.toml --confirm trades
    """
    topic, partition = options["topic"], options["partition"]
    copies = _copies(all_statuses(config), topic, partition)
    first, behind = _gap(copies, f"{topic}-{partition}")
    lost = f"records {first} to {behind - 1} of {topic}-{partition}"
    if options["confirm"] != topic:
        if as_json:
            print_json(_found(copies, first, behind, done=False))
        fail(f"{lost} are on no node. Nothing is done; to give them up: --confirm {topic}")
    asked = VoidRecords(topic, partition, first, behind, options["without"])
    ask(config, asked)
    if as_json:
        print_json(_found(copies, first, behind, done=True))
    else:
        talk(f"{lost} are given up; samelog status keeps the event")


def _copies(answers: Sequence[Status | AdminError], topic: str, partition: int) -> list[Copy]:
    copies = [
        Copy(answer.node, info.end_offset, info.wanted_offset)
        for answer in answers
        if isinstance(answer, Status)
        for info in answer.partitions
        if (info.topic, info.partition) == (topic, partition)
    ]
    if not copies:
        troubles = "; ".join(str(answer) for answer in answers if isinstance(answer, AdminError))
        fail(f"no node knows {topic}-{partition} {troubles}".rstrip())
    return copies


def _gap(copies: Sequence[Copy], name: str) -> tuple[int, int]:
    """The offsets that all copies miss: some may hold records behind a damaged batch."""
    ends = {copy.end_offset for copy in copies}
    behind = min(copy.wanted_offset for copy in copies)
    if len(ends) > 1 or behind <= copies[0].end_offset:
        seen = ", ".join(_describe(copy) for copy in copies)
        fail(f"{name} does not miss the same records everywhere, for good: {seen}")
    return copies[0].end_offset, behind


def _describe(copy: Copy) -> str:
    misses = f"misses those up to {copy.wanted_offset}" if copy.wanted_offset else "misses none"
    return f"{copy.node} has offsets up to {copy.end_offset} and {misses}"


def _found(copies: Sequence[Copy], first: int, behind: int, *, done: bool) -> dict[str, Any]:
    rows = [copy._asdict() for copy in copies]
    return {"first_offset": first, "next_offset": behind, "copies": rows, "done": done}
