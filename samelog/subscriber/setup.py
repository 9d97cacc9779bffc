"""Puts a subscriber together: options completed from the configuration and checked, copies found.

Invariant: what is returned works; if anything is wrong, nothing is left running.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict

from samelog.admin.registry import SchemaRegistry
from samelog.config.load import load_client
from samelog.config.tables.client import ClientConfig
from samelog.format.arguments import check_choice, check_integer, check_number
from samelog.format.file_names import parse_input_name
from samelog.format.names import check_group_name
from samelog.format.numbers import PARTITIONS, VERSIONS
from samelog.format.transactions import Isolation
from samelog.store.disk.files import FileSystem, OsFileSystem
from samelog.subscriber.engine import Choice, Engine
from samelog.subscriber.errors import UnknownTopic
from samelog.subscriber.filters import Corrupt, FilterOptions, filters_of, names_in
from samelog.subscriber.groups.membership import GroupMembership, MemberOptions
from samelog.subscriber.groups.reporting import PositionReporter, ReportedPositions
from samelog.subscriber.groups.sharing import OwnPositions, Sharing
from samelog.subscriber.keeper import Keeper, NoKeeper
from samelog.subscriber.positions import PositionStore
from samelog.subscriber.replay import MAX_GAP_S, Replay
from samelog.subscriber.start import AutoOffsetReset, StartFinder, StartOption, parse_start
from samelog.subscriber.topics.chosen import ChosenTopics, parse_topics
from samelog.subscriber.topics.discovery import Discovery
from samelog.typed.filters.selection import RowsWanted

REBALANCE_MOST_S = ((1 << 31) - 1) // 1000
"""As Kafka's protocol can say it, in ms."""


class SubscriberKeywords(TypedDict, total=False):
    """The options of `Subscriber`, which documents them, and of `AsyncSubscriber`."""

    directory: str | os.PathLike[str] | None
    config: str | os.PathLike[str] | ClientConfig | None
    start: StartOption | None
    name: str | None
    partitions: Iterable[int] | None
    auto_commit: bool
    commit_interval_s: float
    auto_offset_reset: str | AutoOffsetReset
    follow: bool
    isolation: str | Isolation
    version: int | None
    corrupt: str | Corrupt
    where: str | None
    columns: Sequence[str] | None
    group: str | None
    positions: OwnPositions | None
    rebalance_timeout_s: float
    replay: float | None
    max_gap: float | None
    registry: str | None


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of one subscriber."""

    topics: ChosenTopics
    directory: str
    name: str | None
    engine: Engine
    client: ClientConfig | None
    version: int | None
    corrupt: Corrupt
    wanted: RowsWanted
    replay: Replay | None
    registry: SchemaRegistry | None


def prepare(topics: str | Iterable[str] | None, given: SubscriberKeywords) -> Setup:
    """Check the options, begin to keep copies, and look at what is there; see `Subscriber`."""
    unknown = sorted(given.keys() - SubscriberKeywords.__optional_keys__)
    if unknown:
        raise TypeError(f"a subscriber has no option {', '.join(unknown)}")
    config, partitions = given.get("config"), given.get("partitions")
    client = load_client(os.fspath(config)) if isinstance(config, str | os.PathLike) else config
    chosen = Choice(
        _chosen_topics(topics, client),
        None if partitions is None else _checked_partitions(partitions),
        given.get("follow", True),
        check_choice("isolation", given.get("isolation", Isolation.READ_UNCOMMITTED), Isolation),
    )
    corrupt = check_choice("corrupt", given.get("corrupt", Corrupt.RAISE), Corrupt)
    version = _checked_version(given.get("version"))
    wanted = RowsWanted(given.get("where"), given.get("columns"))
    name, group = given.get("name"), given.get("group")
    start = parse_start(given.get("start"), is_named=name is not None or group is not None)
    replay, registry = _replay(given), _registry(given.get("registry"), wanted)
    root = _root(given.get("directory"), client)
    _check_member(chosen, client, given)
    fs = OsFileSystem()
    discovery = _discover(fs, root, chosen, client)
    sharing = _share(chosen, given)
    if sharing is not None:
        root = os.path.join(root, "groups", sharing.membership.options.group)
    options = FilterOptions(wanted, version, corrupt, chosen.isolation)
    filters = partial(filters_of, fs, root, client=client, options=options)
    rows = dict(filters(chosen.topics))
    chosen = replace(chosen, sharing=sharing, rows=rows, new_topics=discovery)
    reset = check_choice(
        "auto_offset_reset", given.get("auto_offset_reset", AutoOffsetReset.ERROR), AutoOffsetReset
    )
    store = sharing or (
        None if name is None else _named(PositionStore(fs, root, name), name, client)
    )
    finder = StartFinder(start, reset, store, is_shared=sharing is not None)
    engine = Engine(fs, root, chosen, finder=finder, store=store, is_kept_here=client is not None)
    try:
        engine.keeper = _keep(root, chosen, client, finder, engine)
        engine.find_partitions()
        if discovery is not None:
            discovery.start(engine.keeper, finder, filters, rows, sharing)
    except BaseException:
        engine.stop_copying()
        engine.close()
        raise
    known = client, version, corrupt, wanted, replay, registry
    return Setup(chosen.topics, root, name, engine, *known)


def _checked_version(version: int | None) -> int | None:
    return None if version is None else check_integer("version", version, VERSIONS)


def _checked_partitions(partitions: Iterable[int]) -> frozenset[int]:
    what = "a number in partitions"
    return frozenset(check_integer(what, each, PARTITIONS) for each in partitions)


def _registry(url: str | None, wanted: RowsWanted) -> SchemaRegistry | None:
    """Raises ValueError."""
    if url is not None and not wanted.is_all:
        raise ValueError("nodes evaluate where and columns, and ask no registry")
    return None if url is None else SchemaRegistry(url)


def _discover(
    fs: FileSystem, root: str, chosen: Choice, client: ClientConfig | None
) -> Discovery | None:
    """What learns of topics that patterns mean, if a cluster can be asked. Raises
    TopicsNotKnown.
    """
    if client is None or not chosen.topics.patterns:
        return None
    discovery = Discovery(client, chosen.topics)
    there = (parse_input_name(name) for name in names_in(fs, root))
    discovery.look((each[0] for each in there if each is not None), follows=chosen.follow)
    return discovery


def _replay(given: SubscriberKeywords) -> Replay | None:
    """Raises ValueError: the speed or the longest gap is not a number above 0, or the gap is of no
    replay.
    """
    speed, max_gap = given.get("replay"), given.get("max_gap")
    if speed is not None:
        return Replay(speed, MAX_GAP_S if max_gap is None else max_gap)
    if max_gap is not None:
        raise ValueError("max_gap has no meaning without replay")
    return None


def _keep(
    root: str,
    chosen: Choice,
    client: ClientConfig | None,
    finder: StartFinder,
    engine: Engine,
) -> Keeper:
    """Begin to keep copies, if there is a configuration."""
    if client is None:
        found = map(parse_input_name, names_in(OsFileSystem(), root))
        _check_local(filter(None, found), chosen)
        return NoKeeper()
    from samelog.subscriber.copier import Copier, CopyListener
    from samelog.subscriber.copy_snapshots import WantedCopies

    return Copier(
        root,
        chosen.topics.names,
        client,
        find_start=finder.begin_copy,
        listener=CopyListener(engine.waiter.wake, engine.waiter.wake_to_rescan, _following(chosen)),
        wanted=WantedCopies(
            chosen.partitions, must_exist=not chosen.follow and chosen.new_topics is None
        ),
        rows=chosen.rows,
        is_shared=engine.sharing is not None,
    )


def _check_local(found: Iterable[tuple[str, int]], chosen: Choice) -> None:
    """Raises UnknownTopic: there are copies, but of no chosen partition."""
    there = {number for topic, number in found if topic in chosen.topics.names}
    if chosen.follow or chosen.partitions is None or not there or chosen.partitions & there:
        return
    raise UnknownTopic(
        f"no local copy is of partition {', '.join(map(str, sorted(chosen.partitions)))}; "
        f"there are copies of {', '.join(map(str, sorted(there)))}"
    )


def _named(
    store: PositionStore, name: str, client: ClientConfig | None
) -> PositionStore | ReportedPositions:
    """Positions under a name, of which the cluster is told, if there is one."""
    return store if client is None else ReportedPositions(store, PositionReporter(client, name))


def _following(chosen: Choice) -> Callable[[ClientConfig], None]:
    """Who else speaks to the nodes of another configuration."""

    def follow(config: ClientConfig) -> None:
        if chosen.new_topics is not None:
            chosen.new_topics.follow(config)
        if chosen.sharing is not None and chosen.sharing.speaker is not None:
            chosen.sharing.speaker.follow(config)

    return follow


def _check_member(chosen: Choice, client: ClientConfig | None, given: SubscriberKeywords) -> None:
    """Raises ValueError: this is no member of a group, or lacks what one needs."""
    if given.get("group") is None:
        if given.get("positions") is not None:
            raise ValueError("positions of one's own go with a group")
        return
    if client is None:
        raise ValueError("the member of a group needs a config: the cluster knows the group")
    for option in ("name", "partitions"):
        if given.get(option) is not None:
            raise ValueError(f"{option} does not go with group: the group has it")
    if not chosen.follow:
        raise ValueError("the member of a group follows: what others have it does not know")


def _share(chosen: Choice, given: SubscriberKeywords) -> Sharing | None:
    """What a member of a group has. Raises InvalidName."""
    group = given.get("group")
    if group is None:
        return None
    rebalance_s = given.get("rebalance_timeout_s", 300.0)
    rebalance_s = check_number("rebalance_timeout_s", rebalance_s, 1, REBALANCE_MOST_S)
    host = socket.gethostname()
    options = MemberOptions(check_group_name(group), chosen.topics.names, host, rebalance_s)
    return Sharing(GroupMembership(options), given.get("positions"))


def _chosen_topics(topics: str | Iterable[str] | None, client: ClientConfig | None) -> ChosenTopics:
    if topics is None:
        topics = () if client is None else client.subscriber.topics
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names:
        raise ValueError("topics is empty: name at least one")
    return parse_topics(names)


def _root(directory: str | os.PathLike[str] | None, client: ClientConfig | None) -> str:
    if directory is not None:
        return os.path.abspath(os.fspath(directory))
    if client is None or client.subscriber.directory is None:
        raise ValueError("directory is missing: pass it, or set dir in [subscriber] of the config")
    return client.subscriber.directory
