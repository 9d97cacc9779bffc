"""The transaction coordinator: whichever node leads.

What a producer asks for is a command of the replicated state, which answers when it is applied. A
command is proposed here or nowhere: were it sent on to another leader, it might arrive there once
more behind what the producer asked for next, and open a transaction that nobody ends. While the
last transaction of a producer is being carried out, its next request waits.

Any node takes a transaction's batches. It knows from its own state, which may be behind, whether
they belong to one; only what it learns from the leader is a reason to refuse them.

Invariant: nothing is answered before it is committed; no batch is taken that belongs to no open
transaction, and the planner asks again.
"""

from __future__ import annotations

import asyncio

from samelog.consensus import Busy, NotLeader
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.runtime.clock import Clock
from samelog.sequencer.admin.parts import HeldGroups
from samelog.sequencer.parts import LogParts, RaftParts
from samelog.sequencer.raft.group import ProposalLost
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.open_transactions import TakePart
from samelog.sequencer.state.tables.transactions import (
    AddToTransaction,
    CommitInTransaction,
    EndTransaction,
    InitProducer,
    ProducerIdAndEpoch,
    Transaction,
    TransactionsTable,
)

ANSWER_S = 3.0
"""How long a request waits for markers before the client is told to ask again."""
ERRORS = {
    "CONCURRENT_TRANSACTIONS": ErrorCode.concurrent_transactions,
    "PRODUCER_FENCED": ErrorCode.producer_fenced,
    "INVALID_TXN_STATE": ErrorCode.invalid_txn_state,
    "INVALID_PRODUCER_ID_MAPPING": ErrorCode.invalid_producer_id_mapping,
    "UNKNOWN_TOPIC": ErrorCode.unknown_topic_or_partition,
    "TOO_MANY": ErrorCode.policy_violation,
    "NOT_OWNER": ErrorCode.transactional_id_authorization_failed,
}
Asked = InitProducer | AddToTransaction | CommitInTransaction | EndTransaction
"""What a client asks for."""


class TransactionCoordinator:
    """Of one node. Implements any_broker.TransactionGate."""

    def __init__(
        self, raft: RaftParts, machine: StateMachine, clock: Clock, groups: HeldGroups
    ) -> None:
        """`raft` and `machine`: of group 0."""
        self.clock = clock
        self._groups = groups
        self._raft = raft
        self._machine = machine

    @property
    def known(self) -> TransactionsTable:
        """What the replicated state knows of transactions."""
        return self._machine.state.transactions

    @property
    def leads(self) -> bool:
        """Whether this node coordinates."""
        return self._raft.group.is_leader

    # --- asking -----------------------------------------------------------------------------------

    async def decide(self, command: Asked) -> ProducerIdAndEpoch:
        """What the command answers; it waits for markers of the transaction before. Raises
        ApiError.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                while True:
                    found = await self._once(command)
                    if isinstance(found, ProducerIdAndEpoch) and not found.must_wait:
                        return found
                    if isinstance(found, Rejection) and found.code != "CONCURRENT_TRANSACTIONS":
                        raise _error_of(found)
                    await self.carried_out(command.transactional_id)
        except TimeoutError as error:
            text = "the last transaction is still being carried out"
            raise ApiError(ErrorCode.concurrent_transactions, text) from error

    async def end(self, command: Asked) -> ProducerIdAndEpoch:
        """The same, and wait for its own markers, so that who reads afterwards sees what was
        decided. It is decided, however long they take. Raises ApiError.
        """
        found = await self.decide(command)
        try:
            async with asyncio.timeout(ANSWER_S):
                await self.carried_out(command.transactional_id)
        except TimeoutError:
            pass
        return found

    async def carried_out(self, transactional_id: str) -> None:
        """Wait until all markers of an id's transaction, if it is decided, are in their logs."""
        replica = self._raft.replica
        while (known := self.known.by_id.get(transactional_id)) is not None and known.is_deciding:
            await replica.wait_applied(replica.applied_index + 1)

    async def _once(self, command: Asked) -> ProducerIdAndEpoch | Rejection:
        if not self.leads:
            raise ApiError(ErrorCode.not_coordinator, "another node leads")
        try:
            outcomes: list[ProducerIdAndEpoch | Rejection] = await self._raft.group.ask([command])[
                1
            ]
        except Busy as error:
            text = "too much is under way: ask again"
            raise ApiError(ErrorCode.coordinator_load_in_progress, text) from error
        except (NotLeader, ProposalLost) as error:
            raise ApiError(ErrorCode.not_coordinator, "it does not lead any more") from error
        found: ProducerIdAndEpoch | Rejection = outcomes[0]
        return found

    # --- batches ----------------------------------------------------------------------------------

    def problem_with(
        self, transactional_id: str, producer: tuple[int, int], partition: int
    ) -> ApiError | None:
        """Why a batch of this (producer id, epoch) belongs to no open transaction, as far as this
        node knows.
        """
        known = self.known.by_id.get(transactional_id)
        if known is None or known.producer_id != producer[0]:
            text = f"{transactional_id!r} does not have producer id {producer[0]}"
            return ApiError(ErrorCode.invalid_producer_id_mapping, text)
        if known.epoch != producer[1]:
            return ApiError(ErrorCode.invalid_producer_epoch, f"the epoch is {known.epoch}")
        if not known.takes_part(partition):
            text = f"the partition is not in an open transaction of {transactional_id!r}"
            return ApiError(ErrorCode.invalid_txn_state, text)
        if not self._is_known_there(known, partition):
            text = f"the group of the partition has not heard of {transactional_id!r} yet"
            return ApiError(ErrorCode.invalid_txn_state, text)
        return None

    def _is_known_there(self, known: Transaction, partition: int) -> bool:
        """Whether the group that has a partition knows that it takes part, if it is here."""
        parts = self._parts_of(partition)
        if parts is None:
            return True
        joined = (
            parts[0].machine.state.open_transactions.in_log(partition).joined.get(known.producer_id)
        )
        return joined is not None and joined.number == known.number

    def _parts_of(self, partition: int) -> tuple[LogParts, RaftParts] | None:
        """Of the data group that has a partition, if it is in one, and here."""
        is_placed = partition in self._machine.state.placement.partitions
        return self._groups.parts(partition) if is_placed else None

    async def take_part(self, transactional_id: str, partition: int) -> None:
        """Have the group of a partition know what takes part in an open transaction there, by which
        it judges batches. Raises ApiError.
        """
        known, parts = self.known.by_id.get(transactional_id), self._parts_of(partition)
        if known is None or parts is None or not known.takes_part(partition):
            return
        table, here = self._machine.state.placement, parts[0].machine.state.partitions.by_number
        group = table.group_of(partition)
        members = known.unit.participants if known.unit is not None else ()
        numbers = [each for each in members if table.group_of(each) == group and each in here]
        command = TakePart(known.producer_id, known.epoch, known.number, numbers)
        try:
            outcome = await parts[1].proposer.propose(command)
        except TimeoutError as error:
            text = "no leader of its group has confirmed it"
            raise ApiError(ErrorCode.not_enough_replicas, text) from error
        if isinstance(outcome, Rejection):
            raise _error_of(outcome)

    async def join(self, transactional_id: str, producer: tuple[int, int], partition: int) -> None:
        """Let a partition take part for a producer whose epochs last for one transaction each
        (KIP-890): who hears of it late refuses it. Raises ApiError.
        """
        command = AddToTransaction(
            transactional_id, *producer, [partition], [], self.clock.wall_ms()
        )
        try:
            outcome = await self._raft.proposer.propose(command)
        except TimeoutError as error:
            raise ApiError(ErrorCode.not_enough_replicas, "no leader has confirmed it") from error
        if isinstance(outcome, Rejection):
            refused = _error_of(outcome)
            if refused.code is ErrorCode.producer_fenced:  # Produce has another word for it
                refused = ApiError(ErrorCode.invalid_producer_epoch, refused.message)
            raise refused


def _error_of(refused: Rejection) -> ApiError:
    code = ERRORS.get(refused.code, ErrorCode.unknown_server_error)
    return ApiError(code, refused.message)
