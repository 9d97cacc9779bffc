"""What a pull client is given, and what it tells of itself.

Invariant: none of it changes while the client runs; what does is in its configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from samelog.config.values import Address
from samelog.format.directory_files import RowsFile
from samelog.format.errors import LogFormatError
from samelog.replicator.pull.copy import Copy, FindStart
from samelog.runtime.clock import Clock
from samelog.runtime.disk.syncer import Syncer
from samelog.runtime.network.tls import ReloadingContext
from samelog.store.disk.files import FileSystem
from samelog.wire.pull.copies import EARLIEST
from samelog.wire.pull.refusal import Refusal


@dataclass(frozen=True, slots=True)
class PullStatus:
    """How copying is. `node`: the one connected to, empty if none; `problems`: of topics;
    `partitions`: how many each topic has, as a node said.
    """

    address: Address
    node: str
    last_error: str | None
    disk_fault: LogFormatError | None
    problems: Mapping[str, Refusal]
    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullParts:
    """What a pull client works with."""

    tls: ReloadingContext
    fs: FileSystem
    syncer: Syncer
    clock: Clock
    random: Random


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """How a pull client copies, and whom it tells.

    With `is_shared` it copies what it is told to with `share`, and nothing else.

    `find_start` tells where a copy that does not exist yet begins. With `begins_anew` a copy
    restarts at once when the cluster starts a new log for its partition. With `is_resumed`
    partitions that have no copy, while others of their topic have, were added since. `on_change` is
    called when a copy grew, caught up, or changed its state; `on_status` when `status` has changed.
    `rows`: by topic, if only what passes a filter is wanted of it.
    """

    find_start: FindStart = lambda topic, topic_id, partition: EARLIEST
    begins_anew: bool = False
    is_resumed: bool = False
    is_shared: bool = False
    on_change: Callable[[Copy], None] = lambda copy: None
    on_status: Callable[[], None] = lambda: None
    poll_s: float = 0.5
    rows: Mapping[str, RowsFile] = field(default_factory=dict)
