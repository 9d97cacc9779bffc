"""What the publisher's end of a push connection knows of files and cluster, and what it wants done.

Invariant: the views are values that were read before, and touch no file; effects are carried out in
their order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import msgspec

from samelog.format.directory_files import RunFile
from samelog.wire.bounds import Holder
from samelog.wire.effects import Send, SendMore
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import SessionStartsAt
from samelog.wire.push.layout import Layout
from samelog.wire.refusals import RefusedBatch

InputName = tuple[str, int]
"""(topic, partition): an input of a session that is known."""

RollByte = tuple[int, int]
"""(roll, byte) in a run of an input that is known."""

ProgressTold = tuple[RollByte, RollByte, RollByte]
"""Durable on a node, acknowledged, merged: how far a run of an input has come."""

RunEnds = Mapping[InputName, RollByte]
"""Where a run ends in each input. A partition without an entry has no bytes."""


class FileExtent(msgspec.Struct, frozen=True):
    """How far a file reaches, and which one follows if it will never grow."""

    end: int
    next_file: int | None


class RunFiles(Protocol):
    """The files of one run of one input, as far as they were scanned: values only, no access."""

    @property
    def layout(self) -> Layout | None:
        """How these positions differ from those in the files; None: they do not."""

    @property
    def part_end(self) -> RollByte:
        """Up to where the cluster is to have this part of the run, as far as is known."""

    @property
    def is_damaged(self) -> bool:
        """Whether this part of the run ends in damage."""

    @property
    def first(self) -> RollByte:
        """Where the bytes begin; what is below was released."""

    @property
    def end(self) -> RollByte:
        """Up to where whole batches are known."""

    @property
    def blocked(self) -> str | None:
        """Why the bytes behind `end` are no batch (yet)."""

    @property
    def may_have_more(self) -> bool:
        """Whether there may be bytes behind `end` that were not looked at."""

    @property
    def has_bytes(self) -> bool:
        """Whether there is a file."""

    @property
    def rolls(self) -> list[int]:
        """The files there are."""

    def extent(self, roll: int) -> FileExtent | None:
        """How far a file reaches, as far as that is known."""

    def normal(self, place: RollByte) -> RollByte:
        """The start of the next file, where `place` is the end of a sealed one."""


class SessionView(Protocol):
    """What is known of the session's directory."""

    @property
    def runs(self) -> Sequence[RunFile]:
        """By number."""

    def inputs_of(self, run: int) -> list[InputName]:
        """The inputs that have files of this run, or files of earlier ones that it carries."""

    def to_ship(self, run: int, name: InputName | None = None) -> list[InputName]:
        """Those of them, or of one of them, that may be shipped now."""

    def stays_open(self, run: int) -> bool:
        """Whether a run is not to be ended although all of it that may be shipped was."""

    def topic_id(self, name: InputName) -> str | None:
        """The id of the topic that an input is shipped to; None: whichever has the name."""

    def is_former(self, name: InputName, topic_id: str) -> bool:
        """Whether an input was shipped to this topic before the topic was deleted."""

    def tail(self, run: int, name: InputName) -> RunFiles:
        """The files of one of them."""

    def is_current(self, run: RunFile) -> bool:
        """Whether this is the part of a run that is shipped."""

    def is_over(self, run: int) -> bool:
        """Whether nothing will ever be added to this run, or to this part of it."""

    def has_unnoted_damage(self, run: int) -> bool:
        """Whether damage was found in a run that is not noted durably."""

    def damaged_inputs(self, run: int) -> Collection[InputName]:
        """The inputs of a run in which damage was found."""

    def goes_on(self, run: RunFile) -> bool:
        """Whether a part of a run ends in damage, so that another part follows."""


class ClusterKnowledge(Protocol):
    """What all nodes together have reported, and what is to be asked of each."""

    def wanted_topics(self) -> Mapping[str, int]:
        """Topics, and with how many partitions each is to be created."""

    def is_known(self, topic: str) -> bool:
        """Whether a node has said that a topic is there."""

    def merged(self, run: int, name: InputName) -> RollByte:
        """Up to where a run of an input is merged and durable on a majority, by the positions that
        it is shipped at.
        """

    def is_start_lost(self, run: int, name: InputName) -> bool:
        """Whether all nodes lack bytes of an input that come before its files."""

    def note_refused(self, run: int, name: InputName, code: FaultCode) -> None:
        """A node refuses an input for a reason that time alone does not remove."""

    def is_given_up(self, run: int, name: InputName) -> bool:
        """Whether an input is left behind: no node takes it, and a newer run waits."""


class InputState(Enum):
    """The state of one session partition."""

    WAITING = auto()
    """To be opened, when it is its turn."""
    OPENING = auto()
    AHEAD = auto()
    """The node holds more than is known to be whole here."""
    SHIPPING = auto()
    BLOCKED = auto()
    """Refused, or unreadable here: to be opened again in a while."""
    ELSEWHERE = auto()
    """Other nodes have its partition; this one is asked again in a while."""
    GONE = auto()
    """Nothing is to be sent any more: the topic was deleted, or the files were released."""


class PushPhase(Enum):
    """The phase of a push connection."""

    GREETING = auto()
    IDLE = auto()
    """Nothing to ship: every run there is was closed."""
    OPENING_RUN = auto()
    SHIPPING = auto()
    ENDING = auto()
    """All is sent; the cluster is to close the run."""
    OVER = auto()


@dataclass(slots=True, eq=False)
class ShippedInput:
    """One input. `since`: when it came into its state; `refused_since`: for good, as it seems."""

    name: InputName
    files: RunFiles
    state: InputState = InputState.WAITING
    since: float = 0.0
    handle: int = -1
    topic_id: str | None = None
    """The topic that the handle was opened for; None until the node names it, if it was opened by
    name.
    """
    position: SessionStartsAt | None = None
    """The node's, while it is not known whether both sides have the same bytes before it."""
    reason: str = ""
    unanswered_since: float = 0.0
    """Since when the group of its partition has not answered, while the node does not take it."""
    refused_since: float | None = None
    lacking_since: float | None = None
    """Since when the node has wanted older bytes than there are."""


class Follow(msgspec.Struct, frozen=True):
    """Call `files_changed` whenever the files of this input may have changed."""

    input: ShippedInput


class Unfollow(msgspec.Struct, frozen=True):
    """The files of these inputs do not matter any more."""

    inputs: tuple[ShippedInput, ...]


class Bind(msgspec.Struct, frozen=True):
    """Note which topic the input is shipped to; answer with `bound`."""

    input: ShippedInput
    topic_id: str


class FindBatch(msgspec.Struct, frozen=True):
    """Look for the valid batch at `start` of a roll, at most up to `stop`; answer `batch_found`."""

    input: ShippedInput
    roll: int
    start: int
    stop: int


class BeginAt(msgspec.Struct, frozen=True):
    """A batch boundary is known, perhaps above what was scanned; answer with `begin`."""

    input: ShippedInput
    place: RollByte


class ListFiles(msgspec.Struct, frozen=True):
    """List the directories again; answer with `files_listed`. `input`: whose next file is gone."""

    input: ShippedInput | None


class LoseStart(msgspec.Struct, frozen=True):
    """The cluster lacks bytes of this input whose files are missing: they are damage."""

    input: ShippedInput


class Reached(msgspec.Struct, frozen=True):
    """The node tells of a run of an input: durable, acknowledged, merged, as `layout` counts."""

    run: int
    name: InputName
    places: ProgressTold
    layout: Layout | None = None


class KeepRefused(msgspec.Struct, frozen=True):
    """Keep, durably, what was refused of a batch, before anything that comes later; then say so."""

    handle: int
    run: int
    name: InputName
    batch: RefusedBatch


class RunIsOpen(msgspec.Struct, frozen=True):
    """A node has opened a run, to which the cluster gave this number."""

    run: RunFile
    number: int


class RunIsClosed(msgspec.Struct, frozen=True):
    """The cluster has closed a run, or a part of it; told by every node. `parts`: inputs that are
    yet to come to data groups. Look for damage behind the ends, then call `session_changed`.
    """

    run: RunFile
    ends: RunEnds
    parts: frozenset[InputName] = frozenset()


class InputIsGone(msgspec.Struct, frozen=True):
    """The cluster deleted the topic that an input was opened for. Another topic may have the name
    by now, and bytes of the input.
    """

    run: int
    name: InputName
    topic_id: str


class Forked(msgspec.Struct, frozen=True):
    """The node holds other bytes than this side at the same place."""

    fault: ProtocolFault


class StatusChanged(msgspec.Struct, frozen=True):
    """The phase or a problem has changed."""


CHECKED = "checked"
"""In TopicOpened: whoever publishes is to check that records fit the topic's schema."""


class TopicTold(msgspec.Struct, frozen=True):
    """How many partitions a topic has (0: this node cannot say), and whether what is published to
    it is to be checked.
    """

    topic: str
    partitions: int
    is_checked: bool = False


class HoldersTold(msgspec.Struct, frozen=True):
    """These nodes have a partition that this one has not."""

    nodes: tuple[Holder, ...]


class HoldsDecided(msgspec.Struct, frozen=True):
    """An operator decides on what is held for deleted topics: it continues, or is discarded."""

    continues: bool
    topic_ids: tuple[str, ...]


News = (
    HoldsDecided
    | RunIsOpen
    | RunIsClosed
    | InputIsGone
    | TopicTold
    | HoldersTold
    | KeepRefused
    | Forked
    | StatusChanged
)
"""What all connections of a session tell the one who shipped it, beside `Reached`."""

PushEffect = (
    Send
    | SendMore
    | Follow
    | Unfollow
    | Bind
    | FindBatch
    | BeginAt
    | ListFiles
    | LoseStart
    | Reached
    | News
)


class ShipInput(msgspec.Struct, frozen=True):
    """Read whole batches and send them: at most `limit_bytes`, unless the first one is larger; or,
    with `is_part`, so many bytes of the batch that was begun.

    Answer with the sender's `sent`, or `unreadable`; if the file is not there, list the directory
    again, and answer with `not_there`.
    """

    input: ShippedInput
    roll: int
    byte: int
    limit_bytes: int
    is_part: bool


class ScanInput(msgspec.Struct, frozen=True):
    """Look for more whole batches in the files; answer with `scanned` or `unreadable`."""

    input: ShippedInput
