"""Answers administrators about transactions of Kafka's producers: list, describe, abort.

Any node answers, from the replicated state as it was when asked, or newer. Invariant: only the
transaction that was open when an operator asked is aborted, never the next one.
"""

from __future__ import annotations

from samelog.admin import requests
from samelog.admin.answers import (
    TransactionDescription,
    TransactionInfo,
    TransactionPartition,
    TransactionRows,
)
from samelog.format.steps import StepWork, mapped
from samelog.runtime.slices import paced
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.tables.transactions import TimeOutTransaction, Transaction
from samelog.wire.errors import FaultCode


async def list_transactions(
    node: ServedNode, request: requests.ListTransactions
) -> TransactionRows:
    """All transactional ids. Raises TimeoutError."""
    await node.raft.proposer.catch_up()
    known = node.logs.machine.state.transactions.by_id
    rows = await paced(mapped(lambda item: _info(*item), tuple(known.items())))
    return TransactionRows(tuple(rows))


async def describe_transaction(
    node: ServedNode, request: requests.DescribeTransaction
) -> TransactionDescription:
    """One of them. Raises ChangeRefused, TimeoutError."""
    await node.raft.proposer.catch_up()
    return await paced(_describe(node, request.transactional_id))


async def abort_transaction(
    node: ServedNode, request: requests.AbortTransaction
) -> TransactionDescription:
    """Have its open transaction aborted, as if it were overdue; what became of it, since it may
    have been committed meanwhile. Raises ChangeRefused, TimeoutError.
    """
    await node.raft.proposer.catch_up()
    name = request.transactional_id
    known = _find(node, name)
    if known.unit is None or not known.is_open:
        text = f"{name!r} has no open transaction: it is {known.state_name}"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, text)
    overdue_ms = known.unit.began_ms + known.timeout_ms
    command = TimeOutTransaction(name, known.number, max(overdue_ms, node.member.clock.wall_ms()))
    await node.raft.proposer.propose(command)
    return await paced(_describe(node, name))


def _find(node: ServedNode, name: str) -> Transaction:
    known = node.logs.machine.state.transactions.by_id.get(name)
    if known is None:
        text = f"there is no transactional id {name!r}"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, text, "samelog transaction list")
    return known


def _info(name: str, known: Transaction) -> TransactionInfo:
    began_ms = known.unit.began_ms if known.unit is not None and known.is_open else -1
    return TransactionInfo(
        name, known.state_name, known.producer_id, known.epoch, known.timeout_ms, began_ms
    )


def _describe(node: ServedNode, name: str) -> StepWork[TransactionDescription]:
    known, state = _find(node, name), node.logs.machine.state
    partitions = []
    for number in () if known.unit is None else tuple(known.unit.unfinished()):
        partition = state.partitions.by_number.get(number)
        if partition is not None:
            opened = state.open_transactions.in_log(number).open.get(known.producer_id)
            first = -1 if opened is None else opened.first_offset
            topic = state.topics.by_id[partition.topic_id].name
            partitions.append(TransactionPartition(topic, partition.index, first))
        yield
    return TransactionDescription(_info(name, known), tuple(partitions), tuple(known.groups))
