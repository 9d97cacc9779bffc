"""Asks the nodes of a cluster over HTTP with mutual TLS: those of `client.toml`, and others that
these name.

`log_history` asks for every file there ever was of merged logs.

Invariant: a request that may have reached a node is never sent a second time unless it only reads
or may be repeated; a change is done once, or the error says that nobody knows.
Also: files come a page at a time: a million of them take no memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from heapq import merge
from http import HTTPStatus
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from samelog.admin.answers import LogFile, SchemaPage, Status
from samelog.admin.errors import AdminError, NotLeaderError
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import (
    PARTITION_S,
    PARTITIONS_MAX,
    AdminRequest,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    GetRaftStatus,
    GetStatus,
    ListSchemas,
    LogHistory,
)
from samelog.admin.table import OPERATION_OF, Operation
from samelog.admin.views import RaftStatus
from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address, parse_address
from samelog.format.arguments import check_integer
from samelog.format.numbers import PARTITIONS
from samelog.wire.errors import FaultCode

TIMEOUT_S = 10.0
LEARN_S = 3.0
"""A node may take so long to say who is a member."""
HOPS_MAX = 3
"""A node names one that has a partition, which names the leader of its group."""
RETRY_S = 0.2
AnswerT = TypeVar("AnswerT")
AskedNode = tuple[Address, str | None]
"""Where a node is, and the name that it must have."""
TRY_ELSEWHERE = (FaultCode.NOT_READY, FaultCode.NOT_LEADER)
CODE_OF = {
    HTTPStatus.FORBIDDEN: FaultCode.NOT_AUTHORISED,
    HTTPStatus.INTERNAL_SERVER_ERROR: FaultCode.INTERNAL,
    HTTPStatus.SERVICE_UNAVAILABLE: FaultCode.NOT_READY,
    HTTPStatus.GATEWAY_TIMEOUT: FaultCode.TIMEOUT,
}
"""Of a refusal that names no code."""
_FILE_ORDER = attrgetter("topic", "partition", "first_offset")


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_decoders_lock = threading.Lock()


class _Refusal(msgspec.Struct):
    """A problem of RFC 9457, as nodes write it."""

    detail: str = ""
    code: str = ""
    remedy: str = ""
    leader: str = ""
    leader_address: str = ""


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Threads must not make msgspec look at a type for the first time at once: it would crash."""
    with _decoders_lock:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        return _decoders[kind]


def ask(config: ClientConfig, request: AdminRequest[AnswerT]) -> AnswerT:
    """What the cluster answers: any node's answer, or that of a node which another one names.

    Tries every node until one answers or `timeout_of` the request is over; raises AdminError.
    """
    deadline = time.monotonic() + timeout_of(request)
    while True:
        failures = []
        for address, name in known_nodes(config):
            try:
                return _ask_or_follow(config, address, request, name)
            except AdminError as error:
                _raise_if_final(error, request)
                failures.append(error)
        if time.monotonic() >= deadline or not _may_pass(failures):
            raise AdminError("no node answers: " + "; ".join(map(str, failures)))
        time.sleep(RETRY_S)


def timeout_of(request: AdminRequest[Any]) -> float:
    """How long a node may take: every node makes or removes the files of each partition. Whoever
    deletes a topic may not know how many it has.
    """
    if isinstance(request, DeleteTopic):
        return TIMEOUT_S + PARTITIONS_MAX * PARTITION_S
    if isinstance(request, CreateTopic | CreatePartitions):
        return TIMEOUT_S + request.partitions * PARTITION_S
    return TIMEOUT_S


def ask_node(
    config: ClientConfig,
    address: Address,
    request: AdminRequest[AnswerT],
    *,
    name: str | None = None,
    timeout_s: float | None = None,
) -> AnswerT:
    """What one node answers, within `timeout_s` (`timeout_of` the request by default); raises
    AdminError, also for a refusal.
    """
    from samelog.admin.exchange import Exchange

    where = f"{name} at {address}" if name else str(address)
    operation = OPERATION_OF[type(request)]
    exchange = Exchange(config, address, name, timeout_s or timeout_of(request))
    answer: AnswerT = answer_of(operation, *exchange.run(operation, request, where), where)
    return answer


def answer_of(operation: Operation, status: int, body: bytes, where: str) -> Any:
    """What a node's answer says; raises AdminError, also for a refusal."""
    try:
        if status == HTTPStatus.OK:
            return _decoder(operation.answer).decode(body)
        refusal: _Refusal = _decoder(_Refusal).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        kind = operation.request.__name__
        raise AdminError(f"{where} did not answer {kind}: {error}", sent=True) from error
    raise _refused(status, refusal, where)


def node_status(config: ClientConfig, address: Address, timeout_s: float | None = None) -> Status:
    """The cluster as the node at `address` sees it; raises AdminError."""
    name = dict(known_nodes(config)).get(address)
    return ask_node(config, address, GetStatus(), name=name, timeout_s=timeout_s)


def all_statuses(
    config: ClientConfig, nodes: Sequence[AskedNode] | None = None
) -> list[Status | AdminError]:
    """What every node says of the cluster."""
    return ask_each(config, GetStatus(), nodes)


def ask_each(
    config: ClientConfig, request: AdminRequest[AnswerT], nodes: Sequence[AskedNode] | None = None
) -> list[AnswerT | AdminError]:
    """What every node says, asked side by side: by default those of `all_nodes`, in its order."""
    chosen = all_nodes(config) if nodes is None else nodes
    return _ask_side_by_side(config, request, chosen, timeout_of(request))


def _ask_side_by_side(
    config: ClientConfig,
    request: AdminRequest[AnswerT],
    nodes: Sequence[AskedNode],
    timeout_s: float,
) -> list[AnswerT | AdminError]:
    def answer_of(node: AskedNode) -> AnswerT | AdminError:
        address, name = node
        try:
            return ask_node(config, address, request, name=name, timeout_s=timeout_s)
        except AdminError as error:
            return error

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(nodes)) as threads:
        return list(threads.map(answer_of, nodes))


def _refused(status: int, refusal: _Refusal, where: str) -> AdminError:
    code = FaultCode.__members__.get(refusal.code.upper())
    if code is None:
        code = CODE_OF.get(HTTPStatus(status), FaultCode.PROTOCOL)
    if code is FaultCode.NOT_LEADER:
        text = f"{where}: {refusal.detail}" if refusal.leader else f"{where}: knows no leader"
        return NotLeaderError(text, refusal.leader, refusal.leader_address)
    remedy = f" ({refusal.remedy})" if refusal.remedy else ""
    text = refusal.detail or f"{where} answers with status {status}"
    return AdminError(text + remedy, code=code, sent=code is FaultCode.TIMEOUT)


def _ask_or_follow(
    config: ClientConfig, address: Address, request: AdminRequest[AnswerT], name: str | None
) -> AnswerT:
    for _ in range(HOPS_MAX):
        try:
            return ask_node(config, address, request, name=name)
        except NotLeaderError as error:
            told = named_node(config, error)
            if told is None:
                raise
            address, name = told
    return ask_node(config, address, request, name=name)


def named_node(config: ClientConfig, error: NotLeaderError) -> tuple[Address, str] | None:
    """The node that another one names: a configured one is where its configuration says."""
    known = {name: address for address, name in known_nodes(config)}
    told = known.get(error.leader) or parse_address(error.address)
    return (told, error.leader) if error.leader and told is not None else None


def _raise_if_final(error: AdminError, request: AdminRequest[Any]) -> None:
    """Raise errors that another node can't mend."""
    operation = OPERATION_OF[type(request)]
    if error.sent and not operation.repeatable:
        raise AdminError(f"{error}; it may have been done all the same: look, then repeat")
    if error.code is not None and error.code not in (*TRY_ELSEWHERE, FaultCode.TIMEOUT):
        raise error


def _may_pass(failures: Sequence[AdminError]) -> bool:
    """Whether waiting may help: some node is there, but not ready."""
    return any(error.code in TRY_ELSEWHERE for error in failures)


def known_nodes(config: ClientConfig) -> list[AskedNode]:
    """The nodes of a configuration, with the names that they must have."""
    names = config.node_names or (None,) * len(config.nodes)
    return list(zip(config.nodes, names, strict=True))


def all_nodes(config: ClientConfig) -> list[AskedNode]:
    """The nodes of a configuration, and the members that they know of beside these, which are where
    the other members reach them. Who may not ask for members learns of none.
    """
    known = known_nodes(config)
    answers = _ask_side_by_side(config, GetRaftStatus(), known, LEARN_S)
    given = [answer for answer in answers if isinstance(answer, RaftStatus)]
    names = {*(name for _, name in known), *(answer.node for answer in given)}
    return known + [each for each in _members(given) if not {*each} & {*config.nodes, *names}]


def _members(answers: Sequence[RaftStatus]) -> list[AskedNode]:
    """As the best informed node knows them."""
    newest = max(answers, key=lambda answer: answer.commit_index, default=None)
    members = () if newest is None else newest.members
    places = ((parse_address(each.address), each.name) for each in members)
    return [(address, name) for address, name in places if address is not None]


def log_history(
    config: ClientConfig | str, topic: str = "", *, partition: int | None = None
) -> Iterator[LogFile]:
    """Every file of merged logs there ever was, in order of topic, partition and offset.

    Args:
        config: a client's configuration, or its file.
        topic: of this topic only.
        partition: of this partition only.

    Yields:
        LogFile: offsets [first_offset, next_offset), times in ms since the epoch (-1: none, or
        not known), `archived_ms` -1 while the file is there, `size_bytes` before it was archived,
        `sha256` of a sealed one, `reason` of an archived one; `copied_ms`, `copy_url` and
        `copy_formats` of one that was copied before.

    Raises:
        AdminError: no node answers, or there is no such topic.
        TypeError, ValueError: the partition is no number of a partition.
    """
    from samelog.config.load import load_client

    client = load_client(config) if isinstance(config, str) else config
    wanted = LogHistory(topic or UNSET, _asked_partition(partition))
    placed = sorted(
        (each.topic, each.partition)
        for each in ask(client, GetPlacement()).partitions
        if each.group and topic in ("", each.topic) and partition in (None, each.partition)
    )
    if (topic, partition) in placed:
        yield from _history(client, wanted)
        return
    of_groups = chain.from_iterable(_history(client, LogHistory(*each)) for each in placed)
    yield from merge(_history(client, wanted), of_groups, key=_FILE_ORDER)


def _asked_partition(partition: int | None) -> int | UnsetType:
    return UNSET if partition is None else check_integer("partition", partition, PARTITIONS)


def _history(config: ClientConfig, request: LogHistory) -> Iterator[LogFile]:
    """Page after page."""
    page = ask(config, request)
    yield from page.files
    while page.more:
        last = page.files[-1]
        place = last.topic, last.partition, last.next_offset
        page = ask(config, LogHistory(request.topic, request.partition, *place))
        yield from page.files


def topic_schemas(
    config: ClientConfig, topic: str, partition: int | UnsetType = UNSET
) -> SchemaPage:
    """All versions of a topic's schema, as one page; raises AdminError."""
    page = ask(config, ListSchemas(topic, partition=partition))
    versions, topic_id = page.versions, page.topic_id
    while page.more:
        page = ask(config, ListSchemas(topic, len(versions) + 1, partition))
        if page.topic_id != topic_id:  # reset, or recreated meanwhile
            return topic_schemas(config, topic, partition)
        versions += page.versions
    return msgspec.structs.replace(page, versions=versions)
