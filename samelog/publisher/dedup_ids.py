"""The numbers that an application gives its records so that twins can be recognised.

They rise, gaps are legal, and a header carries only their low 31 bits: the cluster unwraps each
from the one before it in its partition (from the run's first number at the start). So records
whose numbers do not follow each other never share a batch, and a number too far ahead begins a new
run.

Invariant: every number appended is higher than all before it, and can be unwrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from samelog.format.arguments import check_integer, shown
from samelog.format.dedup import DEDUP_SEQUENCES
from samelog.format.numbers import DEDUP_IDS
from samelog.publisher.errors import InvalidId
from samelog.publisher.records import TopicPartition

ID_MAX = (1 << 63) - 1


class DedupIds:
    """The numbers of one publisher."""

    def __init__(self) -> None:
        self.base: int | None = None
        """The run's first number."""
        self._last: int | None = None
        self._last_of: dict[TopicPartition, int] = {}

    def check(self, ids: Sequence[int]) -> None:
        """Raise InvalidId unless all of them rise above what was appended."""
        last = self._last
        for number in _ends(ids) if isinstance(ids, range) else ids:
            if type(number) is not int or not 0 <= number <= ID_MAX:
                raise InvalidId(f"{shown(number)} is not an id: an int from 0 to 2^63 - 1")
            if last is not None and number <= last:
                raise InvalidId(f"id {number} does not rise: the one before it is {last}")
            last = number

    def needs_new_run(self, name: TopicPartition, number: int) -> bool:
        """Whether the run, if there is one, is not one in which `number` could be told there."""
        base = self.base
        return base is None or _is_out_of_reach(number, self._last_of.get(name, base), base)

    def cut_into_runs(
        self, names: Sequence[TopicPartition] | TopicPartition, numbers: Sequence[int]
    ) -> Iterator[tuple[int, int, bool]]:
        """The index ranges [start, stop) that can be told in one run, and whether it is a new one.

        `names` gives the partition of each number, or of all.
        """
        base, last_of = self.base, dict(self._last_of)
        start, is_new = 0, False
        is_one = isinstance(names, TopicPartition)
        for index in range(1 if is_one and isinstance(numbers, range) else len(numbers)):
            number = numbers[index]
            name = names if isinstance(names, TopicPartition) else names[index]
            if base is None or _is_out_of_reach(number, last_of.get(name, base), base):
                if index > start:
                    yield start, index, is_new
                start, is_new, base, last_of = index, True, number, {}
            last_of[name] = number
        yield start, len(numbers), is_new

    def begin_run(self, base: int) -> None:
        """A run begins whose first number is `base`."""
        self.base = base
        self._last_of.clear()

    def appended(self, name: TopicPartition, last: int) -> None:
        """Records up to `last` were appended to a partition."""
        self._last_of[name] = last
        self._last = last if self._last is None else max(self._last, last)


def _is_out_of_reach(number: int, before: int, base: int) -> bool:
    """`number` is below `base` if an append failed and the application counts from lower again."""
    return number < base or number - before >= DEDUP_SEQUENCES


def _ends(ids: range) -> tuple[int, ...]:
    return (ids[0],) if len(ids) == 1 else (ids[0], ids[-1])


def stretches(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The index ranges [start, stop) in which each number is the one before plus one."""
    if isinstance(ids, range):
        yield 0, len(ids)
        return
    start = 0
    for stop in range(1, len(ids) + 1):
        if stop == len(ids) or ids[stop] != ids[stop - 1] + 1:
            yield start, stop
            start = stop


def sequence_of(number: int) -> int:
    """The `baseSequence` of a batch header for a dedup id."""
    return number % DEDUP_SEQUENCES


def as_ids(ids: Iterable[int] | None, first_id: int | None, count: int) -> Sequence[int] | None:
    """The numbers of `count` records, given one by one or by the first. Raises InvalidId."""
    if ids is not None and first_id is not None:
        raise InvalidId("give either ids or first_id")
    if first_id is not None:
        try:
            first = check_integer("first_id", first_id, DEDUP_IDS)
        except (TypeError, ValueError) as error:
            raise InvalidId(str(error)) from None
        return range(first, first + count)
    if ids is None:
        return None
    numbers = list(ids)
    if len(numbers) != count:
        raise InvalidId(f"{count} values have {len(numbers)} ids")
    return numbers
