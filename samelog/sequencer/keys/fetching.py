"""Gets the part of an index of keys that is about archived records from a peer, and gives it. Of a
partition that comes from another group, members of that one are asked.

Invariant: what was fetched counts only when all of it is here, and as a whole is what a majority
agrees on, as far as one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from samelog.format import _kernels as kernels
from samelog.runtime.disk.threads import InThread
from samelog.sequencer.cluster.repair.merged import OtherGroups
from samelog.sequencer.state.tables import keys as key_table
from samelog.sequencer.state.tables.keys import KeyedPartition
from samelog.store.keys.key_store import KeyEntry, KeyStore
from samelog.wire.peer_messages import KeysAsked, KeysTold

ANSWER_S = 10.0
LOOKED_AT = 2_000
TOLD_BYTES = 32 << 10
SUMMED_AT_ONCE = 20_000

SendAboutKeys = Callable[[int, KeysAsked | KeysTold], object]
"""To a member, which may be this one."""
IndexHolders = tuple[int, Sequence[int]]
"""A group, and its members that can be asked."""
_decoder = msgspec.msgpack.Decoder(list[KeyEntry])


@dataclass(frozen=True, slots=True)
class Fetched:
    """The digests of the blocks of what was fetched, and whether one is not what is agreed."""

    sums: dict[int, int]
    is_different: bool


class KeyFetches:
    """One replica's."""

    def __init__(
        self,
        group: int,
        send: SendAboutKeys,
        holders: Callable[[int], IndexHolders],
        in_thread: InThread,
    ) -> None:
        """`group`: of this replica; `holders`: who has the index of a partition."""
        self._group = group
        self._send = send
        self._holders = holders
        self._in_thread = in_thread
        self._awaited: dict[tuple[int, bytes, int], asyncio.Future[KeysTold]] = {}
        """(partition, behind, below) -> the answer."""
        self._turn = 0

    async def fetch(
        self, number: int, store: KeyStore, below: int, keyed: KeyedPartition
    ) -> Fetched | None:
        """Put a peer's entries of records below an offset into an index; None: none has told all
        of them. Raises DiskFault.
        """
        group, peers = self._holders(number)
        if not peers:
            return None
        self._turn += 1
        peer, behind, is_last = peers[self._turn % len(peers)], b"", False
        while not is_last:
            told = await self._asked(peer, KeysAsked(group, self._group, number, behind, below))
            if told is None:
                return None
            await self._in_thread(store.advance, _decoder.decode(told.entries), 0, {})
            behind, is_last = told.reach, told.is_last
        sums = await self._in_thread(sums_of, store, below)
        whole = [each for each in whole_below(keyed.floor, below) if each in keyed.agreed]
        return Fetched(sums, any(sums.get(each, 0) != keyed.agreed[each] for each in whole))

    async def _asked(self, peer: int, asked: KeysAsked) -> KeysTold | None:
        key = asked.partition, asked.behind, asked.below
        future = self._awaited[key] = asyncio.get_running_loop().create_future()
        try:
            self._send(peer, asked)
            async with asyncio.timeout(ANSWER_S):
                told: KeysTold = await future
                return told
        except TimeoutError:
            return None
        finally:
            del self._awaited[key]

    def answered(self, told: KeysTold) -> None:
        """A peer has answered."""
        future = self._awaited.get((told.partition, told.behind, told.below))
        if future is not None and not future.done():
            future.set_result(told)

    async def answer(self, node: int, asked: KeysAsked, store: KeyStore) -> None:
        """Tell a peer what follows. Raises as KeyStore.page."""
        found = await self._in_thread(store.page, asked.behind, LOOKED_AT)
        kept, size = list[KeyEntry](), 0
        reach = asked.behind
        is_last = len(found) < LOOKED_AT
        for key, offset in found:
            if size > TOLD_BYTES:
                is_last = False
                break
            reach = key
            if offset < asked.below:
                kept.append((key, offset))
                size += len(key) + 12
        where = asked.asker, asked.partition, asked.behind, asked.below
        self._send(node, KeysTold(*where, msgspec.msgpack.encode(kept), reach, is_last))


def holders_of(
    own: int, ask: Callable[[], Sequence[int]], elsewhere: OtherGroups, number: int
) -> IndexHolders:
    """Who has the index of a partition: members of the group that it comes from, or of this one."""
    if members := elsewhere.members(number):
        return elsewhere.group(number), members
    return own, ask()


def whole_below(floor: int, below: int) -> range:
    """The blocks of which every record that counts is below an offset."""
    return range(-(-floor // key_table.BLOCK_RECORDS), below // key_table.BLOCK_RECORDS)


def sums_of(store: KeyStore, below: int) -> dict[int, int]:
    """The digests of the blocks of an index, up to an offset, by its entries. For threads."""
    sums: dict[int, int] = {}
    behind = b""
    while found := store.page(behind, SUMMED_AT_ONCE):
        for key, offset in found:
            if offset < below:
                block = offset // key_table.BLOCK_RECORDS
                sums[block] = kernels.digest_keys([key], offset, sums.get(block, 0))
        behind = found[-1][0]
    return sums
